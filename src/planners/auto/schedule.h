// Who is called when, on a problem without a host.
#pragma once

#include "planners/auto/options.h"
#include "remat/planner.h"

namespace remat::automatic {

/// Calls planners and bounds one after the other, each with the plans and proofs of those before it.
PlanResult run_schedule(const Problem& problem, const Options& own, const PlanOptions& options,
                        Limits& limits);

}  // namespace remat::automatic
