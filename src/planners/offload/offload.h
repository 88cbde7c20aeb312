// Joint plans for a problem with a host: keep, recompute, or offload and fetch.
#pragma once

#include "remat/planner.h"

namespace remat::offload {

/// For `auto`: a problem with a host, objective time and fixed order.
PlanResult plan_with_host(const Problem& problem, const PlanOptions& options, Limits& limits);

}  // namespace remat::offload
