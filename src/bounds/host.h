// The moments at which the bounds for plans with copies are computed.
#pragma once

#include <vector>

#include "remat/bounds.h"

namespace remat {

/// At most `most` ops at which keep-all is over the budget: the one with the greatest cut bound, then others
/// evenly spread. Empty if keep-all is within the budget.
std::vector<OpId> scarce_moments(const Graph& graph, Bytes budget, int most);

}  // namespace remat
