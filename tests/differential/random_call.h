// Random arguments of a planner's call, other than graph and budget.
#pragma once

#include <map>
#include <string>

#include "differential/exact.h"
#include "remat/planner.h"
#include "remat/random.h"

namespace remat::differential {

/// None to two of the planner's options.
std::map<std::string, std::string> random_options(const PlannerInfo& planner, Random& random);

/// A valid plan with random recomputations, in the graph's order or in another one.
Plan random_plan(const exact::Graph& tiny, bool fixed_order, Random& random);

}  // namespace remat::differential
