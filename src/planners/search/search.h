// Remat's own planner: anytime search over the step sequence. docs/planners/search.md.
#pragma once

#include "remat/planner.h"

namespace remat::search {

PlannerInfo info();

}  // namespace remat::search
