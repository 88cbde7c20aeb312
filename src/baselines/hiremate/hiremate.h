// HiREmate (Gusak et al. 2025): a hierarchy of groups, options for each, an integer program that combines
// them. The framework itself, with its interfaces, is include/remat/hiremate.h. docs/planners/hiremate.md.
#pragma once

#include "remat/planner.h"

namespace remat::hiremate {

PlannerInfo info();

}  // namespace remat::hiremate
