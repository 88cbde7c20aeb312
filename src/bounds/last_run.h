// A peak bound from the last of several steps that need much memory.
#pragma once

#include "remat/bounds.h"

namespace remat {

/// A bound from sets of ops: one op of the set runs last of all, and from then on no output of the set can be
/// recomputed. So at that step memory holds values that cut the kept outputs off from the set's outputs: at
/// least a minimum cut. Visits at most `most_ticks` arcs of the network; returns `known` if it proves nothing
/// better.
PeakBound last_run_bound(const Graph& graph, OrderMode order, const PeakBound& known,
                         std::int64_t most_ticks);

}  // namespace remat
