// A first solution for the root, found greedily: what H-ILP starts from, and what is left where it does not
// finish.
#pragma once

#include <vector>

#include "baselines/hiremate/h_ilp_model.h"
#include "remat/limits.h"

namespace remat::hiremate {

/// Op steps of runs of a level.
Option option_of(const Level& level, const LevelGraph& graph, const std::vector<HilpModel::Run>& runs);

/// Starts with every member at its fastest option and all data kept, then changes one member's option, has a
/// member run again for its backward part, or drops one data node until it is read in the backward pass,
/// always what takes most excess (bytes over the budget, summed over steps) off per duration, by the
/// reference simulator; then takes back what the budget has room for. Runs, also where they are over the
/// budget. Only for the root. O(changes * moves * steps).
std::vector<HilpModel::Run> greedy_runs(const Level& level, const LevelGraph& graph, Bytes budget,
                                        std::uint64_t seed, Limits& limits);

}  // namespace remat::hiremate
