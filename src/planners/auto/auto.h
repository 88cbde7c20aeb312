// Runs the other planners under nested limits and keeps the best plan by the reference simulator.
#pragma once

#include "remat/planner.h"

namespace remat::automatic {

PlannerInfo info();

}  // namespace remat::automatic
