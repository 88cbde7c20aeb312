// Keep or copy to the host, and nothing runs twice.
#pragma once

#include "remat/planner.h"

namespace remat::offload_only {

PlannerInfo info();

}  // namespace remat::offload_only
