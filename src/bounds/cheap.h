// The cheap duration bounds within limits, for those who have some.
#pragma once

#include "remat/bounds.h"

namespace remat {

/// As without limits, but what was proved until they are reached.
DurationBound cheap_duration_bound(const Graph& graph, Bytes budget, OrderMode order, Limits& limits);

}  // namespace remat
