// What a little more or less memory would cost, for people at a terminal.
#pragma once

#include <atomic>
#include <string>
#include <vector>

#include "remat/limits.h"
#include "remat/planner.h"

namespace remat::cli {

/// Lines of a table: budgets around the problem's, the overhead of quickly found plans within them, and the
/// lower bound on it. `result` must have a plan; it is the start. The problem's own budget is marked. Empty
/// if the graph is too large, or if `stop` was set before the end.
std::vector<std::string> nearby_budgets(const Problem& problem, const PlanResult& result, Bytes keep_all_peak,
                                        const PlanOptions& options, const std::atomic<bool>& stop);

}  // namespace remat::cli
