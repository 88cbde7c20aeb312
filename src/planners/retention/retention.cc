#include "planners/retention/retention.h"

#include <algorithm>
#include <functional>
#include <optional>
#include <utility>

#include "exact/relief.h"
#include "exact/retention_cut.h"
#include "planners/retention/segments.h"
#include "planning/incumbent.h"
#include "planning/options.h"
#include "polish/polish.h"

namespace remat::retention {
namespace {

constexpr int kMostMoments = 64;
constexpr std::int64_t kMostTicks = 2'000'000'000;
constexpr std::int64_t kTicksPerUnit = 50;
constexpr std::int64_t kNear = 1000;  ///< a gap of this part of the base duration ends the search

/// Forbids reruns of `amount` bytes whose values are alive at the step, those that live longest first: at
/// that step they cost as much as kept values. False if there are none.
bool rule_out_reruns(Graph& graph, OpId at, const Plan& plan, StepId step, Bytes amount) {
  std::vector<InstanceLife> held;
  for (const InstanceLife& life : instance_lives(graph, plan)) {
    const OpId maker = graph.producer[life.value];
    const bool is_rerun = maker < at && life.first.index() > at.index();
    if (is_rerun && life.first <= step && step < life.end && graph.recomputable[maker]) held.push_back(life);
  }
  std::stable_sort(held.begin(), held.end(),
                   [](const InstanceLife& a, const InstanceLife& b) { return a.end > b.end; });
  for (const InstanceLife& life : held) {
    if (amount <= Bytes()) break;
    graph.recomputable[graph.producer[life.value]] = false;
    amount -= graph.bytes[life.value];
  }
  return !held.empty();
}

/// Plans by choices at the moment of the keep-all peak, each with a smaller peak. If one is over the budget
/// at a later step, since recomputed values are held for several readers, such reruns are forbidden and the
/// choice is repeated: twice the step's excess in bytes, then less if that was too much. If that does not
/// help, the moment gets less memory.
std::vector<Plan> first_moment_plans(const Graph& graph, Bytes budget, Limits& limits) {
  std::vector<Plan> plans;
  Simulation least = simulate(graph, keep_all_plan(graph));
  const OpId at(least.peak_step.index());
  Graph ruled = graph;
  IndexVector<OpId, bool> before = graph.recomputable;  // the last ruling
  Bytes room = budget;
  std::int64_t share = 4;  // halves of the excess
  for (int round = 0; round < kMostMoments && least.peak > budget && !limits.reached(); ++round) {
    const RetentionResult found = solve_retention(ruled, at, room, OrderMode::kFixed, kMostTicks, &limits);
    limits.spend(1 + found.ticks / kTicksPerUnit);
    bool helped = false;
    if (found.choice) {
      Plan plan = polish::without_unread_steps(graph, plan_of(ruled, *found.choice));
      const Simulation cost = simulate(graph, plan);
      helped = cost.peak < least.peak;
      if (helped) {
        least = cost;
        plans.push_back(std::move(plan));
        before = ruled.recomputable;
      }
    }
    const Bytes excess = least.peak - budget;
    if (plans.empty() || (!helped && share == 0)) break;
    if (!helped) {
      ruled.recomputable = before;
      share /= 2;
    }
    const Bytes amount(excess.count() / 2 * share);
    if (amount == Bytes() || !rule_out_reruns(ruled, at, plans.back(), least.peak_step, amount)) {
      share = 0;
      room -= excess;
    }
  }
  return plans;
}

/// Continues from plans moment by moment, from each plan once, and adds all plans of the walk.
class Relieved {
 public:
  Relieved(const Graph& graph, Bytes budget, std::vector<Plan>& plans)
      : graph_(graph), budget_(budget), plans_(plans) {}

  void add(Plan plan, Limits& limits) {
    if (std::ranges::find(seen_, plan) != seen_.end()) return;
    seen_.push_back(std::move(plan));
    bool is_first = true;
    relieve(graph_, script_of(seen_.back()), budget_, nullptr, limits, ReliefEffort::kFull,
            [&](const Script& script, Bytes) {
              if (!std::exchange(is_first, false)) plans_.push_back(steps_of(script));
              return true;
            });
  }

 private:
  const Graph& graph_;
  Bytes budget_;
  std::vector<Plan>& plans_;
  std::vector<Plan> seen_;
};

struct Options {
  bool buy_back = true;
};

PlanResult run(const Problem& problem, const Options& options, const PlanOptions&, Limits& limits) {
  const Graph& graph = *problem.graph;
  Incumbent best(problem, "retention", limits);
  best.offer(keep_all_plan(graph));
  std::vector<Plan> plans = candidate_plans(graph, problem.budget, limits);
  const std::int64_t moments = std::ssize(plans);
  // If some fit, the others were intermediate plans.
  const auto fits = [&](const Plan& plan) { return simulate(graph, plan).peak <= problem.budget; };
  if (std::ranges::any_of(plans, fits)) std::erase_if(plans, std::not_fn(fits));
  for (Plan& plan : plans) {
    if (options.buy_back && !limits.reached()) plan = polish::buy_back(graph, plan, problem.budget, limits);
    best.offer(std::move(plan));
  }
  return best.result({{"moments", moments}});
}

}  // namespace

std::vector<Plan> candidate_plans(const Graph& graph, Bytes budget, Limits& limits) {
  SegmentedPlans segmented = segmented_plans(graph, budget, limits);
  const bool is_near = segmented.fits && segmented.gap.count() <= graph.base_duration.count() / kNear;
  std::vector<Plan> plans;
  for (auto* plan : {&segmented.first, &segmented.least}) {
    if (*plan) plans.push_back(std::move(**plan));
  }
  if (plans.empty() || is_near || limits.reached()) return plans;
  const Plan first = plans.front();
  Relieved relieved(graph, budget, plans);
  if (!segmented.fits) relieved.add(plans.back(), limits);
  for (Plan& plan : first_moment_plans(graph, budget, limits)) plans.push_back(std::move(plan));
  relieved.add(plans.back(), limits);
  // If the first moment does not suffice, either method may find the better plan.
  Limits part(limits, 0.5);
  if (plans.size() > 1) relieved.add(first, part);
  return plans;
}

PlannerInfo info() {
  const auto table =
      OptionTable<Options>("retention")
          .flag("buy_back", &Options::buy_back, "erase recomputations at the end while the budget holds");
  return with_options(
      {"retention",
       "what to keep across the moment of the peak and what to run again, by minimum cuts; then the next one",
       "optimal at one moment, up to one step of the hull; may miss its budget", "Remat",
       [](const Problem& problem) -> std::optional<std::string> {
         if (problem.objective == Objective::kPeak) return "it needs a budget (objective time)";
         return std::nullopt;
       }},
      table, run);
}

}  // namespace remat::retention
