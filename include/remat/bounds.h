// Lower bounds that no plan can beat, each with the argument that proves it.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "remat/graph.h"
#include "remat/plan.h"

namespace remat {

/// A lower bound on the peak of every plan in an order mode.
struct PeakBound {
  std::string argument;  ///< "floor", ...
  Bytes peak;
  OpId op;               ///< the op that needs it, or none
};

/// The per-op floor: resident inputs + the inputs, outputs and workspace of one op, and resident inputs +
/// all kept outputs. Valid in both orders. O(edges).
PeakBound floor_bound(const Graph& graph);

/// The best peak bound known for the order, the floor included.
PeakBound best_peak_bound(const Graph& graph, OrderMode order);

/// A lower bound on the duration of every plan within a budget.
struct DurationBound {
  std::string argument;  ///< "base", ...
  Duration duration;
};

}  // namespace remat
