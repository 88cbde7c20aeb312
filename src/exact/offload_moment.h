// What to keep across one moment, what to run again after it, and what to have on the host: a linear program,
// whose prices prove a bound in integers. docs/bounds.md tells it whole.
#pragma once

#include "remat/graph.h"
#include "remat/host.h"
#include "remat/limits.h"

namespace remat {

/// At the first run of op `at`: no plan in fixed order within the budget takes less beyond one run of each
/// op. Stops once `limits` are reached, with what was proved until then.
Duration offload_bound(const Graph& graph, OpId at, Bytes budget, const Host& host, Limits& limits);

}  // namespace remat
