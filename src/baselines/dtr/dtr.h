// Dynamic tensor rematerialization (Kirisame et al. 2021), simulated along the graph's order: the online
// baseline, without lookahead.
#pragma once

#include "remat/planner.h"

namespace remat::dtr {

PlannerInfo info();

}  // namespace remat::dtr
