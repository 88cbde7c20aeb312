// Choices at one moment whose reruns are split into segments, each run when there is memory for it.
#pragma once

#include <optional>
#include <vector>

#include "remat/graph.h"
#include "remat/limits.h"
#include "remat/plan.h"

namespace remat::retention {

struct SegmentedPlans {
  std::optional<Plan> first;  ///< of the choice as it is
  std::optional<Plan> least;  ///< of the smallest peak, if it is another one
  bool fits = false;          ///< one of them
  /// at least by how much the one that fits is slower than the bound at this moment
  Duration gap;
};

/// The best choice at the moment of the keep-all peak, cut into segments until its plan is within the budget
/// or no cut helps.
///
/// A chain of reruns, such as a stream of residuals, comes back as a whole where its end is read first. Where
/// the few values that cross some position are kept, what is before it comes back when the rest is gone:
///
///     reruns   o - o - o - o - o - o - o      all seven are held when the last one is read
///     reruns   o - o - o - k - o - o - o      three are, the first three later; k is kept
///
/// Memory frees itself on the way, so segments may grow: few cuts do, however long the chain is. A cut takes
/// O(steps), and none of them a new choice; one more choice with what is kept pays for all.
SegmentedPlans segmented_plans(const Graph& graph, Bytes budget, Limits& limits);

}  // namespace remat::retention
