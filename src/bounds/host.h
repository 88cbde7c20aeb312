// Bounds that hold for plans with copies, too. Those of bounds.h do not: a value on the host is neither in
// memory nor made again.
#pragma once

#include "remat/bounds.h"

namespace remat {

/// The floor of the ops alone: an op has its inputs and outputs on the device. (Kept outputs need not be
/// there together before the last step has ended.)
PeakBound host_peak_bound(const Graph& graph);

/// Where memory is scarce in keep-all: the op where `cut` is dearest, then others that are over the budget,
/// evenly spread, at most so many. Empty where nothing has to leave.
std::vector<OpId> scarce_moments(const Graph& graph, Bytes budget, int most);

/// Fixed order: the best of the relaxations at some scarce moments, with the host as a third choice; at least
/// every op once. Free order: every op once.
DurationBound host_duration_bound(const Graph& graph, Bytes budget, OrderMode order, const Host& host,
                                  Limits& limits);

}  // namespace remat
