#include <algorithm>

#include "base/numbers.h"
#include "bounds/cheap.h"
#include "bounds/cut.h"
#include "bounds/moments.h"
#include "exact/retention_cut.h"
#include "remat/bounds.h"
#include "remat/check.h"

namespace remat {

namespace {

/// Ticks of minimum cuts: about ten microseconds per op on small graphs, about 0.1 s in all up to 60,000 ops,
/// then two microseconds per op. Deep models need a third of that.
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

/// If keep-all is within the budget, no bound may exceed one run of each op.
bool allows_keep_all(const Graph& graph, Bytes budget, const DurationBound& bound) {
  return bound.duration <= graph.base_duration || simulate(graph, keep_all_plan(graph)).peak > budget;
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
  REMAT_ASSERT_HEAVY(allows_keep_all(graph, budget, best), best.argument, best.duration, budget);
  return best;
}

DurationBound cheap_duration_bound(const Graph& graph, Bytes budget, OrderMode order) {
  Limits none;
  return cheap_duration_bound(graph, budget, order, none);
}

DurationBound best_duration_bound(const Graph& graph, Bytes budget, OrderMode order,
                                  std::optional<Duration> known, Limits& limits,
                                  std::optional<Plan>* faster) {
  DurationBound best = cheap_duration_bound(graph, budget, order, limits);
  if (known) best.duration = std::min(best.duration, *known);
  if (order != OrderMode::kFixed) return best;
  if (!limits.reached() && (!known || best.duration < *known)) {
    std::optional<Plan> plan = Moments(graph, budget).raise(known, limits, best);
    REMAT_ASSERT_HEAVY(!plan || !validate(graph, *plan, order, budget), budget);
    if (plan && faster) *faster = std::move(plan);
  }
  REMAT_ASSERT_HEAVY(allows_keep_all(graph, budget, best), best.argument, best.duration, budget);
  REMAT_ASSERT(!known || best.duration <= *known, best.duration, known->count());
  return best;
}

}  // namespace remat
