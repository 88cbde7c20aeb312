// Reruns and fetches in one sequence: what is done, before it is said when copies begin and end.
#pragma once

#include <vector>

#include "remat/plan.h"

namespace remat::offload {

/// One of both: an op runs, or a value is fetched back from the host for the items after it.
struct Item {
  OpId op;
  ValueId fetched;
  friend bool operator==(const Item&, const Item&) = default;
};

/// Every op at least once. Whoever reads a value reads what made or fetched it last; before its first run
/// nothing of an op is fetched.
using Script = std::vector<Item>;

/// The steps, and each chosen value fetched across the longest gap, in time, between two uses of one
/// instance.
Script script_of(const Graph& graph, const Plan& steps, const IndexVector<ValueId, bool>& chosen);

/// Without reruns and fetches that nobody reads, cascades included, and fetches that the graph forbids.
Script without_unread(const Graph& graph, const Script& script);

/// The values that are fetched.
IndexVector<ValueId, bool> fetched_values(const Graph& graph, const Script& script);

}  // namespace remat::offload
