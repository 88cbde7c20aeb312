#include "planners/search/pool.h"

#include "planning/objective.h"

namespace remat::search {

Simulation Pool::cost(const Found& found) const {
  return {.peak = graph_->graph->resident + Bytes(found.peak * graph_->unit),
          .peak_step = StepId(),
          .duration = Duration(capped(found.duration)),
          .traffic = {}};
}

void Pool::offer(const Found& found, bool sought) {
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
