// The best plan for an executor that takes a set of saved results.
#pragma once

#include "remat/executor.h"

namespace remat::executors {

/// For kPartitioner and kCheckpoint, and a problem that `check_request` accepts. Throws InputError for a
/// graph without what the executor needs.
ExecutorPlan best_plan(const Problem& problem, Executor executor, const PlanOptions& options, Limits& limits);

}  // namespace remat::executors
