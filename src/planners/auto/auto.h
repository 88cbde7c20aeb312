// The schedule of the default planner: bounds, everything cheap, then search for the rest of the limits.
#pragma once

#include "remat/planner.h"

namespace remat::automatic {

PlannerInfo info();

}  // namespace remat::automatic
