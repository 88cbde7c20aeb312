// A sequence of steps as a graph in which nothing runs twice: the next moment of it is a moment as the first.
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

/// Every item of the script as an op of its own, every instance as a value: what a plan runs twice are two
/// ops. The generator state of such an op is a value that the first makes and the others read. A fetch is an
/// op without inputs that takes as long as its price. Nothing where sums would leave what a graph may hold.
std::optional<Unrolled> unrolled(const Graph& graph, const Script& script,
                                 const FetchPrices* prices = nullptr);

}  // namespace remat
