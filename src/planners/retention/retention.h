// Minimum cuts at the moment with the highest memory give the least duration there; then the next moment.
#pragma once

#include <vector>

#include "remat/planner.h"

namespace remat::retention {

/// The plans on the way from keep-all to the budget, in the order of their making; the last ones fit if any
/// does. Empty if no moment's choice fits, or if keep-all fits.
std::vector<Plan> candidate_plans(const Graph& graph, Bytes budget, Limits& limits);

}  // namespace remat::retention
