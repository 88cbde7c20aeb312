// What a planner is told beside the graph and the budget, drawn at random.
#pragma once

#include <map>
#include <string>
#include <string_view>

#include "differential/exact.h"
#include "remat/plan.h"
#include "remat/random.h"

namespace remat::differential {

/// Options of `planner`, none to two of them.
std::map<std::string, std::string> random_options(std::string_view planner, Random& random);

/// A valid plan that runs ops again for no reason, in the graph's order or in another one.
Plan random_plan(const exact::Graph& tiny, bool fixed_order, Random& random);

}  // namespace remat::differential
