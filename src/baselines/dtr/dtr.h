// Dynamic tensor rematerialization (Kirisame et al. 2021), simulated over the graph's order: the online
// baseline, which never looks ahead.
#pragma once

#include "remat/planner.h"

namespace remat::dtr {

PlannerInfo info();

}  // namespace remat::dtr
