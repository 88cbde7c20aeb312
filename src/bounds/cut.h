// Bounds on duration from one cut through time.
#pragma once

#include "remat/bounds.h"

namespace remat {

/// Fixed order: at the first run of op i all earlier ops have run and no later one. Every value made before
/// it and read after it (or kept) is in memory beside i, or its op runs again after i. Freeing the excess
/// costs at least the fractional knapsack over duration per byte. The best over all i: O(edges log ops).
/// `at` receives that op, or none where nothing has to be dropped anywhere.
DurationBound fixed_cut_bound(const Graph& graph, Bytes budget, OpId* at = nullptr);

/// Free order: the same with ancestors of i for what has run and descendants for what has not, which holds
/// in every order. O(ops * (values + edges)); "base" above some thousand ops.
DurationBound free_cut_bound(const Graph& graph, Bytes budget, OpId* at = nullptr, Limits* limits = nullptr);

}  // namespace remat
