// The best plan for an executor that takes a set of saved results.
#pragma once

#include "remat/door.h"

namespace remat::doors {

/// For kInductor and kCheckpoint, and a problem that `check_request` lets through. Throws InputError for a
/// graph that does not have what the door needs.
DoorPlan best_plan(const Problem& problem, Door door, const PlanOptions& options, Limits& limits);

}  // namespace remat::doors
