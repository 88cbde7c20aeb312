#include "planners/search/pool.h"

#include <tuple>

namespace remat::search {

bool Pool::improves(const Found& found, const std::optional<Found>& held, bool by_peak) const {
  if (!held) return true;
  const auto key = [&](const Found& f) {
    return by_peak ? std::tuple(Wide{f.peak}, f.duration) : std::tuple(f.duration, Wide{f.peak});
  };
  return key(found) < key(*held);
}

void Pool::offer(const Found& found, bool within) {
  const std::scoped_lock lock(mutex_);
  auto& held = within ? best_ : closest_;
  if (!improves(found, held, by_peak_ || !within)) return;
  held = found;
  if (!within && best_) return;
  Progress progress;
  progress.planner = "search";
  progress.seconds = limits_->seconds();
  progress.peak = graph_->graph->resident + Bytes(found.peak * graph_->unit);
  progress.duration = Duration(capped(found.duration));
  progress.within_budget = within;
  limits_->report(progress);
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
