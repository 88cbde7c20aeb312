// --executor of remat plan: the best that an executor of others can do, beside the full plan.
#pragma once

#include "common.h"

namespace remat::cli {

/// What an executor has saved, and the full plan beside it.
void add_executor(Report& report, const Request& request, const Answer& answer);
/// Why the executor has no plan.
std::string executor_failure(const Request& request, const Answer& answer, const std::string& asked,
                             Report& report);

}  // namespace remat::cli
