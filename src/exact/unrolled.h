// A sequence of steps as a graph with one run per op, so that methods for one moment apply repeatedly.
#pragma once

#include "exact/retention_cut.h"
#include "plan/script.h"

namespace remat {

/// The op of index i is item i of the script.
struct Unrolled {
  Graph graph;
  IndexVector<ValueId, ValueId> value;  ///< of each instance; none for a generator state
  FetchPrices prices;                   ///< of each instance; empty where none were given
};

/// Every item of the script becomes an op, every instance a value: an op that runs twice becomes two. Its
/// generator state is a value that the first makes and the others read. A fetch is an op without inputs whose
/// duration is its price. Nothing if sums exceed what a graph may hold.
std::optional<Unrolled> unrolled(const Graph& graph, const Script& script,
                                 const FetchPrices* prices = nullptr);

}  // namespace remat
