// Large neighbourhood search: removes recomputations, then repairs the budget by minimum cuts.
#pragma once

#include "remat/planner.h"

namespace remat::lns {

PlannerInfo info();

}  // namespace remat::lns
