// --executor of remat plan: the best plan for another program's executor, beside the full plan.
#pragma once

#include "common.h"

namespace remat::cli {

/// The values that an executor saves, and the full plan for comparison.
void add_executor(Report& report, const Request& request, const Answer& answer);
/// Why the executor has no plan.
std::string executor_failure(const Request& request, const Answer& answer, const std::string& asked,
                             Report& report);

}  // namespace remat::cli
