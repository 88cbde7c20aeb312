// Keep, compute again or fetch back, moment by moment, where every copy has a price.
#pragma once

#include "exact/retention_cut.h"
#include "planners/offload/script.h"
#include "remat/limits.h"

namespace remat::offload {

/// From keep-all, again and again the best choice at the dearest step of what was chosen before, until the
/// budget is met, no choice meets it or the limits are reached. A fetch costs its price each time; that
/// copies take time, and memory on their way, is left to the prices and to the timetable.
Script joint_choice(const Graph& graph, Bytes budget, const FetchPrices& prices, Limits& limits);

}  // namespace remat::offload
