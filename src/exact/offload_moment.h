// What to keep across one moment, what to rerun after it, and what to hold on the host: a linear program
// whose dual prices prove a bound in integers. Described in docs/bounds.md.
#pragma once

#include "remat/graph.h"
#include "remat/host.h"
#include "remat/limits.h"

namespace remat {

/// A lower bound, from the first run of op `at`, on the duration beyond one run of each op of every plan in
/// fixed order within the budget. When `limits` are reached, returns what is proved by then.
Duration offload_bound(const Graph& graph, OpId at, Bytes budget, const Host& host, Limits& limits);

}  // namespace remat
