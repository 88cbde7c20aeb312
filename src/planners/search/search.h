// Remat's own planner: anytime search over the step sequence. docs/planners/search.md.
#pragma once

#include <map>
#include <string>

#include "remat/planner.h"

namespace remat::search {

/// Settings without recomputation: only free order's moves of first runs, from keep-all or the starts.
std::map<std::string, std::string> only_first_runs();

}  // namespace remat::search
