// Large neighbourhood search: recomputations go, and minimum cuts bring back what the budget asks for.
#pragma once

#include "remat/planner.h"

namespace remat::lns {

PlannerInfo info();

}  // namespace remat::lns
