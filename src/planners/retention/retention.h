// The least duration at the moment when memory is scarcest, by minimum cuts; then at the next such moment.
#pragma once

#include <vector>

#include "remat/planner.h"

namespace remat::retention {

PlannerInfo info();

/// The plans on the way from keep-all towards the budget, in the order in which they were made; the last ones
/// fit where any does. Empty where no moment's choice fits, or where keep-all does.
std::vector<Plan> candidate_plans(const Graph& graph, Bytes budget, Limits& limits);

}  // namespace remat::retention
