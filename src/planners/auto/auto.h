// What people should call: cheap planners first, then search from their plans, and proofs within reach.
#pragma once

#include "remat/planner.h"

namespace remat::automatic {

PlannerInfo info();

}  // namespace remat::automatic
