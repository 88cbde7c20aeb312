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

/// Fixed order: at the first run of an op, also all values that are read at or after it (or kept) and whose
/// op ran before and may not run again. O(edges).
PeakBound forced_bound(const Graph& graph);

/// The dearest step on the cheapest way to bring the inputs of one op, or all kept outputs, into memory
/// together: of several values that are alive at once one was made last, while the others were alive.
/// Searched backwards over sets of values within a fixed number of units. Returns `known` where it proves
/// nothing better. Valid in the order that it is asked for. docs/bounds.md has the proof.
PeakBound pebbling_bound(const Graph& graph, OrderMode order, const PeakBound& known);

/// The best of the peak bounds above for the order. O(edges) and some milliseconds.
PeakBound best_peak_bound(const Graph& graph, OrderMode order);

/// A lower bound on the duration of every plan within a budget.
struct DurationBound {
  std::string argument;  ///< "base", ...
  Duration duration;
};

}  // namespace remat
