// Checkpoints at articulation points of the forward graph (Chen et al. 2016).
#pragma once

#include <cstdint>
#include <vector>

#include "baselines/lower_set_dp/canonical.h"
#include "remat/planner.h"

namespace remat::chen {

/// Nodes whose removal disconnects the undirected graph. Iterative; O(nodes + edges).
std::vector<bool> articulation_points(const canonical::ForwardGraph& graph);

}  // namespace remat::chen
