// The best plans of all threads.
#pragma once

#include <mutex>
#include <optional>

#include "planners/search/annealer.h"

namespace remat::search {

/// Shared by the threads of one search; with one thread it is a plain variable.
class Pool {
 public:
  Pool(const Problem& problem, const StepModel& graph, Limits& limits)
      : problem_(&problem), graph_(&graph), limits_(&limits) {}

  /// Takes the plan if it is better than the one held. `sought`: it is of the kind that the annealer looks
  /// for, within the budget or of the least peak.
  void offer(const Found& found, bool sought);
  std::optional<Found> best() const;
  std::optional<Found> closest() const;
  /// The best plan, else the closest, else nothing.
  std::optional<Found> any() const;

 private:
  Simulation cost(const Found& found) const;

  mutable std::mutex mutex_;
  const Problem* problem_;
  const StepModel* graph_;
  Limits* limits_;
  std::optional<Found> best_, closest_;
};

}  // namespace remat::search
