// Brute force over plans with copies of tiny graphs.
#pragma once

#include <map>

#include "remat/plan.h"

namespace remat::testing {

/// The least duration of every peak that a plan in fixed order reaches, without what another beats: with up
/// to `most_reruns` recomputations, up to `most_values` values copied out, each once in after it, all issues
/// and waits. A copy in is waited for where its value is read first: earlier stalls more, later is invalid.
std::map<Bytes, Duration> best_with_copies(const Graph& graph, const Host& host, int most_reruns,
                                           int most_values);

}  // namespace remat::testing
