// Which values are worth their copies, without a linear program: a start for graphs of any size.
#pragma once

#include "remat/graph.h"
#include "remat/host.h"

namespace remat::offload {

/// Of what waits across the step of `at`, the values that cost most to make again for each byte, as many as
/// both channels take in `share` of the time between their making and `at`, and between `at` and their next
/// reader. Windows are told apart by 64 parts of the graph. O(values log values + 64 values).
IndexVector<ValueId, bool> worth_copying(const Graph& graph, OpId at, const Host& host, double share);

}  // namespace remat::offload
