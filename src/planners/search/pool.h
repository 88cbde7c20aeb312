// The best plans of all threads.
#pragma once

#include <mutex>
#include <optional>

#include "planners/search/annealer.h"

namespace remat::search {

/// Shared by the threads of one search; with one thread it is a plain variable.
class Pool {
 public:
  Pool(const TrackerGraph& graph, const Limits& limits, bool by_peak)
      : graph_(&graph), limits_(&limits), by_peak_(by_peak) {}

  /// Takes the plan if it is better than what is held. `within`: it fits the budget.
  void offer(const Found& found, bool within);
  std::optional<Found> best() const;
  std::optional<Found> closest() const;
  /// The best plan, else the closest, else nothing.
  std::optional<Found> any() const;

 private:
  bool improves(const Found& found, const std::optional<Found>& held, bool by_peak) const;

  mutable std::mutex mutex_;
  const TrackerGraph* graph_;
  const Limits* limits_;
  bool by_peak_;
  std::optional<Found> best_, closest_;
};

}  // namespace remat::search
