// Bounds on duration from one cut through time.
#pragma once

#include "remat/bounds.h"

namespace remat {

/// Fixed order: at the first run of op i all earlier ops have run and no later one. Every value made before
/// it and read after it (or kept) is in memory beside i, or its op runs again after i. Freeing the excess
/// costs at least the fractional knapsack over duration per byte. The best over all i: O(edges log ops). `at`
/// receives that op, or none if nothing has to be dropped.
DurationBound fixed_cut_bound(const Graph& graph, Bytes budget, OpId* at = nullptr);

/// Free order: the same, where only ancestors of i are known to have run and only descendants not. O(ops *
/// (values + edges)); "base" above a few thousand ops.
DurationBound free_cut_bound(const Graph& graph, Bytes budget, OpId* at = nullptr, Limits* limits = nullptr);

}  // namespace remat
