// Where the bounds for plans with copies look.
#pragma once

#include <vector>

#include "remat/bounds.h"

namespace remat {

/// Where memory is scarce in keep-all: the op where `cut` is dearest, then others that are over the budget,
/// evenly spread, at most so many. Empty where nothing has to leave.
std::vector<OpId> scarce_moments(const Graph& graph, Bytes budget, int most);

}  // namespace remat
