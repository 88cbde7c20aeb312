// The cheap duration bounds within limits.
#pragma once

#include "remat/bounds.h"

namespace remat {

/// As without limits, but returns what was proved when they are reached.
DurationBound cheap_duration_bound(const Graph& graph, Bytes budget, OrderMode order, Limits& limits);

}  // namespace remat
