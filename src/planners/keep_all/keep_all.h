// NoRemat (Kumar et al., section 4): every op once, in the graph's order.
#pragma once

#include "remat/planner.h"

namespace remat::keep_all {

PlannerInfo info();

}  // namespace remat::keep_all
