// Brute force over plans with copies of tiny graphs.
#pragma once

#include <map>

#include "remat/plan.h"

namespace remat::testing {

/// The Pareto set of peak and duration over plans in fixed order with up to `most_reruns` recomputations and
/// up to `most_values` values copied out, each copied in once, over all issues and waits. The wait for a copy
/// in is at the first read of its value: earlier stalls more, later is invalid.
std::map<Bytes, Duration> best_with_copies(const Graph& graph, const Host& host, int most_reruns,
                                           int most_values);

}  // namespace remat::testing
