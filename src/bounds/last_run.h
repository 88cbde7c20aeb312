// What must be in memory beside the last of several dear steps.
#pragma once

#include "remat/bounds.h"

namespace remat {

/// A bound from sets of ops: one of the set runs last of them all, and from then on nothing of the set can be
/// made again. So beside that step there is a set of values that cuts the kept outputs off from what the set
/// makes: at least a minimum cut. Works within `most_ticks` looks at arcs of the network; returns `known`
/// where nothing better is proved.
PeakBound last_run_bound(const Graph& graph, OrderMode order, const PeakBound& known,
                         std::int64_t most_ticks);

}  // namespace remat
