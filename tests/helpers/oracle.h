// Brute force over every plan of a tiny graph: the reference for planners and bounds.
#pragma once

#include <optional>

#include "remat/graph.h"
#include "remat/plan.h"

namespace remat::testing {

/// The smallest peak of any valid plan. For at most 7 ops and 16 values made by ops.
Bytes oracle_min_peak(const Graph& graph, OrderMode order);

/// The least duration of any valid plan within the budget, or nothing if none fits. Dijkstra over (values in
/// memory, ops that have run): exact, because a plan's past matters only through these two.
std::optional<Duration> oracle_min_duration(const Graph& graph, OrderMode order, Bytes budget);

}  // namespace remat::testing
