// Chains whose activations are kept, computed again or sent to the host (Beaumont et al. 2021).
#pragma once

#include "remat/planner.h"

namespace remat::pofo {

PlannerInfo info();

}  // namespace remat::pofo
