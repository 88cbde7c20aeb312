// Problems that planners on Checkmate's stage model do not support.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "remat/planner.h"

namespace remat {

/// Why the stage model does not support this problem (free order, objective peak, more than `most_columns`
/// columns); nothing if it does.
std::optional<std::string> why_no_stage_model(const Problem& problem, std::int64_t most_columns);

}  // namespace remat
