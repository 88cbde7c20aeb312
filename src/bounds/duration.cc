#include <algorithm>

#include "base/numbers.h"
#include "bounds/cheap.h"
#include "bounds/cut.h"
#include "bounds/moments.h"
#include "exact/retention_cut.h"
#include "exact/stage_solve.h"
#include "remat/bounds.h"

namespace remat {

namespace {

/// Of minimum cuts: some ten microseconds per op on small graphs; some 0.1 s in all on those of up to 60,000
/// ops, and then two microseconds per op: deep models need a third of that.
constexpr std::int64_t kTicksPerOp = 4000;
constexpr std::int64_t kMostTicks = 60'000'000;
constexpr std::int64_t kLargeTicksPerOp = 1000;

std::int64_t ticks_for(const Graph& graph) {
  const std::int64_t ops = graph.ops().size();
  return std::max(std::min(kMostTicks, kTicksPerOp * ops), kLargeTicksPerOp * ops);
}

OpId keep_all_peak_op(const Graph& graph) {
  return OpId(simulate(graph, keep_all_plan(graph)).peak_step.index());
}

}  // namespace

DurationBound cheap_duration_bound(const Graph& graph, Bytes budget, OrderMode order, Limits& limits) {
  OpId at;
  DurationBound best = order == OrderMode::kFixed ? fixed_cut_bound(graph, budget, &at)
                                                  : free_cut_bound(graph, budget, &at, &limits);
  if (!at && best.argument == "base") at = keep_all_peak_op(graph);
  if (at) {
    const Duration extra = retention_bound(graph, at, budget, order, ticks_for(graph), &limits);
    if (graph.base_duration + extra > best.duration) best = {"retention", graph.base_duration + extra};
  }
  if (best.duration <= graph.base_duration) best = {"base", graph.base_duration};
  return best;
}

DurationBound cheap_duration_bound(const Graph& graph, Bytes budget, OrderMode order) {
  Limits none;
  return cheap_duration_bound(graph, budget, order, none);
}

namespace {

constexpr std::int64_t kMostColumns = 400'000;
constexpr int kMostWithoutGain = 5;
/// Work of one integer program where the limits allow more: some seconds.
constexpr std::int64_t kMostWork = 30'000'000;

/// At most `count` stages of about equal length, each ended by the dearest step of keep-all near its end:
/// what is held over a boundary is counted in full at the step before it, so the boundaries belong where
/// memory is short. Two stages cut there prove more than a hundred even ones (docs/bounds.md).
std::vector<OpId> stages_at_peaks(const Graph& graph, const IndexVector<StepId, Bytes>& memory,
                                  std::int64_t count) {
  const auto n = graph.ops().size();
  std::vector<OpId> first{OpId(0)};
  for (std::int64_t s = 1; s < count; ++s) {
    const std::int64_t middle = s * n / count, reach = std::max<std::int64_t>(1, n / count / 2);
    std::int64_t best = -1;
    for (std::int64_t at = std::max<std::int64_t>(first.back().index() + 1, middle - reach);
         at < std::min(n, middle + reach); ++at) {
      if (best < 0 || memory[StepId(at - 1)] > memory[StepId(best - 1)]) best = at;
    }
    if (best > 0) first.push_back(OpId(best));
  }
  return first;
}

/// Bounds from the stage model over one choice of stages after the other.
class StageBounds {
 public:
  StageBounds(const Graph& graph, Bytes budget, std::optional<Duration> known, Limits& limits,
              DurationBound& best)
      : graph_(graph), budget_(budget), known_(known), limits_(limits), best_(best) {
    simulate(graph, keep_all_plan(graph), memory_);
  }

  /// Relaxations over 2, 3, 4, 6, 8, 12, ... stages, then integer programs from the best of them on.
  void run() {
    const auto n = graph_.ops().size();
    // More stages soon prove less, and cost more.
    int without_gain = 0;
    for (std::int64_t stages = std::min<std::int64_t>(2, n); !done(stages) && without_gain < kMostWithoutGain;
         stages = std::min(n, next(stages))) {
      const Duration before = best_.duration;
      relaxed_.push_back({bound(stages, false), stages});
      without_gain = best_.duration > before ? 0 : without_gain + 1;
      if (stages == n) break;
    }
    // The highest bound first; among equals the fewest stages.
    std::stable_sort(relaxed_.begin(), relaxed_.end(),
                     [](const auto& a, const auto& b) { return a.first > b.first; });
    for (const auto& [duration, stages] : relaxed_) {
      if (done(stages)) break;
      bound(stages, true);
    }
  }

 private:
  static std::int64_t next(std::int64_t stages) {
    const bool power = (stages & (stages - 1)) == 0;
    return power ? std::max(stages + 1, stages + stages / 2) : stages / 3 * 4;
  }
  bool done(std::int64_t stages) {
    const std::int64_t columns =
        stages * static_cast<std::int64_t>(graph_.num_ops() + 2 * graph_.num_values()) / 2;
    return columns > kMostColumns || limits_.reached() || (known_ && best_.duration >= *known_);
  }

  Duration bound(std::int64_t stages, bool integer) {
    StageSpec spec{
        .budget = budget_, .first = stages_at_peaks(graph_, memory_, stages), .cutoff = std::nullopt};
    if (known_) spec.cutoff = *known_ - Duration(1);
    Limits part(limits_, integer ? 0.5 : 1.0);
    if (integer) part.set_work(std::min(kMostWork, part.work_left().value_or(kMostWork)));
    const StageModel model(graph_, spec);
    StageEffort effort;
    effort.integer = integer;
    effort.fixing_rounds = integer ? 2 : 1;
    effort.heuristics = 0;
    const StageOutcome outcome = solve_stages(graph_, model, spec, effort, part);
    if (outcome.bound > best_.duration) best_ = {integer ? "stage_milp" : "stage_lp", outcome.bound};
    return outcome.bound;
  }

  const Graph& graph_;
  Bytes budget_;
  std::optional<Duration> known_;
  Limits& limits_;
  DurationBound& best_;
  IndexVector<StepId, Bytes> memory_;
  std::vector<std::pair<Duration, std::int64_t>> relaxed_;
};

}  // namespace

DurationBound best_duration_bound(const Graph& graph, Bytes budget, OrderMode order,
                                  std::optional<Duration> known, Limits& limits,
                                  std::optional<Plan>* faster) {
  DurationBound best = cheap_duration_bound(graph, budget, order, limits);
  if (known) best.duration = std::min(best.duration, *known);
  if (order != OrderMode::kFixed) return best;
  if (!limits.reached() && (!known || best.duration < *known)) {
    if (std::optional<Plan> plan = raise_by_moments(graph, budget, known, limits, best)) {
      known = simulate(graph, *plan).duration;
      if (faster) *faster = std::move(plan);
    }
  }
  if (!limits.reached()) StageBounds(graph, budget, known, limits, best).run();
  return best;
}

}  // namespace remat
