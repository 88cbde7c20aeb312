// --door of remat plan: the best that an executor of others can do, beside the full plan.
#pragma once

#include "common.h"

namespace remat::cli {

/// What a door has saved, and the full plan beside it.
void add_door(Report& report, const Request& request, const Answer& answer);
/// Why the door has no plan.
std::string door_failure(const Request& request, const Answer& answer, const std::string& asked,
                         Report& report);

}  // namespace remat::cli
