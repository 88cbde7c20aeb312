#include "planners/retention/segments.h"

#include <utility>

#include "exact/retention_cut.h"
#include "polish/polish.h"

namespace remat::retention {
namespace {

constexpr int kMostChoices = 16;
constexpr int kLeastGain = 8;  ///< stop after a choice that leaves more than 7/8 of the excess
constexpr int kMostCuts = 64;  ///< for each choice
constexpr std::int64_t kMostSegmentTicks = 2'000'000'000;
constexpr std::int64_t kSegmentTicksPerUnit = 50;
constexpr std::int64_t kStepsPerUnit = 64;

/// The places at which the reruns of one choice can be cut. State: the ops of `ruled` that may be rerun.
class Segments {
 public:
  Segments(const Graph& graph, const Retention& choice, Graph& ruled)
      : graph_(graph),
        choice_(choice),
        ruled_(ruled),
        last_reader_(graph.num_values()),
        crossing_(graph.num_ops()) {
    for (OpId op : before()) {
      if (!choice.rerun[op]) continue;
      for (ValueId v : graph.inputs[op]) last_reader_[v] = op;
    }
    for (OpId op : before()) {
      if (!choice.rerun[op]) continue;
      for (ValueId v : graph.outputs[op]) {
        if (!last_reader_[v]) continue;
        crossing_[op] += graph.bytes[v];
        crossing_[last_reader_[v]] -= graph.bytes[v];
      }
    }
    Bytes sum;
    for (OpId op : before()) crossing_[op] = sum += crossing_[op];
  }

  /// Cuts where at least `excess` bytes of rerun values alive at the step are recomputed later, and the least
  /// is kept for it. False if there is no such place.
  bool cut(const Plan& plan, StepId step, Bytes excess) {
    IndexVector<OpId, Bytes> held(graph_.num_ops());
    Bytes all;
    for (const InstanceLife& life : instance_lives(graph_, plan)) {
      const OpId maker = graph_.producer[life.value];
      const bool is_rerun = maker && maker < choice_.at && life.first.index() > choice_.at.index();
      if (!is_rerun || life.first > step || step >= life.end) continue;
      held[maker] += graph_.bytes[life.value];
      all += graph_.bytes[life.value];
    }
    // A longer first segment leaves fewer segments.
    const Bytes enough = excess + Bytes((all - excess).count() / 4);
    OpId near, any;
    Bytes earlier;
    for (OpId op : before()) {
      earlier += held[op];
      const Bytes later = earlier - crossing_[op];
      if (later < excess || crossing_[op] == Bytes()) continue;
      if (later <= enough && (!near || crossing_[op] <= crossing_[near])) near = op;
      if (!any || crossing_[op] < crossing_[any]) any = op;
    }
    return (near || any) && keep_across(near ? near : any);
  }

 private:
  IdRange<OpId> before() const { return {OpId(0), choice_.at}; }

  bool keep_across(OpId position) {
    bool is_new = false;
    for (OpId op : IdRange<OpId>(OpId(0), position.next())) {
      if (!choice_.rerun[op] || !ruled_.recomputable[op]) continue;
      for (ValueId v : graph_.outputs[op]) {
        if (!last_reader_[v] || last_reader_[v] <= position) continue;
        ruled_.recomputable[op] = false;
        is_new = true;
      }
    }
    return is_new;
  }

  const Graph& graph_;
  const Retention& choice_;
  Graph& ruled_;
  IndexVector<ValueId, OpId> last_reader_;  ///< of rerun values
  /// of values that a rerun up to here makes and a later rerun reads
  IndexVector<OpId, Bytes> crossing_;
};

}  // namespace

SegmentedPlans segmented_plans(const Graph& graph, Bytes budget, Limits& limits) {
  SegmentedPlans result;
  Simulation least = simulate(graph, keep_all_plan(graph));
  const OpId at(least.peak_step.index());
  Graph ruled = graph;
  Bytes room = budget;
  std::optional<Duration> bound;
  for (int choices = 0; choices < kMostChoices && !result.fits && !limits.reached(); ++choices) {
    const RetentionResult found =
        solve_retention(ruled, at, room, OrderMode::kFixed, kMostSegmentTicks, &limits);
    limits.spend(1 + found.ticks / kSegmentTicksPerUnit);
    if (!bound) bound = found.bound;
    if (!found.choice) break;
    const Bytes before = least.peak - budget;
    Segments segments(graph, *found.choice, ruled);
    Retention choice = *found.choice;
    Bytes excess;
    int cuts = 0;
    while (true) {
      for (OpId op : IdRange<OpId>(OpId(0), at))
        choice.rerun[op] = choice.rerun[op] && ruled.recomputable[op];
      Plan plan = polish::without_unread_steps(graph, plan_of(graph, choice));
      limits.spend(std::ssize(plan.steps) / kStepsPerUnit);
      const Simulation cost = simulate(graph, plan);
      result.fits = cost.peak <= budget;
      if (result.fits) result.gap = cost.duration - graph.base_duration - *bound;
      excess = cost.peak - budget;
      const bool goes_on =
          !result.fits && cuts < kMostCuts && !limits.reached() && segments.cut(plan, cost.peak_step, excess);
      if (cost.peak < least.peak) {
        least = cost;
        (result.first ? result.least : result.first) = std::move(plan);
      }
      if (!goes_on) break;
      ++cuts;
    }
    if (before - (least.peak - budget) < Bytes(before.count() / kLeastGain)) break;
    if (cuts == 0) room -= excess;
  }
  return result;
}

}  // namespace remat::retention
