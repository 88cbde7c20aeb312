#include "planners/search/pool.h"

#include "planning/objective.h"
#include "remat/check.h"

namespace remat::search {

Simulation Pool::cost(const Found& found) const {
  return {.peak = graph_->graph->resident + Bytes(found.peak * graph_->unit),
          .peak_step = StepId(),
          .duration = Duration(capped(found.duration)),
          .traffic = {}};
}

namespace {

/// The tracker's duration and peak are those of the reference simulator.
bool matches_simulator(const StepModel& compact, const Found& found) {
  const Graph& graph = *compact.graph;
  const Simulation cost = simulate(graph, found.plan);
  return total_duration(graph, found.plan) == found.duration &&
         cost.peak == graph.resident + Bytes(found.peak * compact.unit);
}

}  // namespace

void Pool::offer(const Found& found, bool sought) {
  REMAT_ASSERT_HEAVY(matches_simulator(*graph_, found), found.duration, found.peak, found.plan.steps.size());
  const std::scoped_lock lock(mutex_);
  auto& held = sought ? best_ : closest_;
  const Simulation now = cost(found);
  if (held && preference(*problem_, now) >= preference(*problem_, cost(*held))) return;
  held = found;
  if (!sought && best_) return;
  limits_->report({"search", limits_->seconds(), now.peak, now.duration, within_budget(*problem_, now)});
  if (sought) end_if_good_enough(*problem_, now, *limits_);
}

std::optional<Found> Pool::best() const {
  const std::scoped_lock lock(mutex_);
  return best_;
}

std::optional<Found> Pool::closest() const {
  const std::scoped_lock lock(mutex_);
  return closest_;
}

std::optional<Found> Pool::any() const {
  const std::scoped_lock lock(mutex_);
  return best_ ? best_ : closest_;
}

}  // namespace remat::search
