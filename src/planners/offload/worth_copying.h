// Which values are worth their copies, without a linear program: a start for graphs of any size.
#pragma once

#include "remat/graph.h"
#include "remat/host.h"

namespace remat::offload {

/// Of the values idle across the step of `at`, those that cost most per byte to recompute, as many as the
/// channels can copy in `share` of the time: out between their making and `at`, back between `at` and their
/// next reader. Time windows are resolved to 64 parts of the graph. O(values log values + 64 values).
IndexVector<ValueId, bool> worth_copying(const Graph& graph, OpId at, const Host& host, double share);

}  // namespace remat::offload
