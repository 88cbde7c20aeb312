// What an executor can recompute, and the plan of each choice.
#pragma once

#include <optional>
#include <utility>
#include <vector>

#include "exact/retention_cut.h"
#include "remat/executor.h"

namespace remat::executors {

/// Which forward ops are recomputed, by op.
using Again = IndexVector<OpId, bool>;
/// Which values the host holds between the halves; empty: none.
using Offloaded = IndexVector<ValueId, bool>;

struct Choice {
  Again again;
  Offloaded offloaded = {};

  bool offloads(ValueId v) const { return !offloaded.empty() && offloaded[v]; }
};

/// A graph as an executor sees it.
///
///   forward                    | backward
///   [ layers.0 ] [ layers.1 ]  | (layers.1 again) its backward (layers.0 again) its backward
///                              first_backward     trigger
struct Shape {
  const Graph* graph = nullptr;
  Executor executor = Executor::kPartitioner;
  OpId first_backward;
  IndexVector<OpId, bool> may;            ///< run again
  std::vector<CheckpointRegion> regions;  ///< of checkpoints, in order
  IndexVector<OpId, int> region;          ///< of forward ops; -1: none
  IndexVector<OpId, bool> reaches;        ///< its region's own backward half reads its results
  IndexVector<OpId, bool> read_again;     ///< read at or after its region's recomputation in any case
  /// At most one op of each pair may be recomputed: the first makes a value that the second, of another
  /// region recomputed later, reads.
  std::vector<std::pair<OpId, OpId>> conflicts;
  std::optional<Host> host;  ///< of partitioners
  FetchPrices prices;        ///< with a host: time of both copies of a value; kMaxCount: it cannot be copied

  bool is_forward(OpId op) const { return op < first_backward; }
};

/// Throws InputError naming what the graph lacks.
Shape shape_of(const Graph& graph, Executor executor, const std::optional<Host>& host = std::nullopt);
/// The same; nothing if the graph lacks it.
std::optional<Shape> shape_if_any(const Graph& graph, Executor executor);

/// The choice that the executor carries out for `again`: a region is recomputed up to the last missing result
/// that its own backward half reads, results that nothing reads again are not saved, and of a conflict the
/// first op is saved. Nothing if the iteration does not converge.
std::optional<Again> settled(const Shape& shape, Again again);
/// The same with values on the host: not those that are made again.
std::optional<Choice> settled(const Shape& shape, Choice choice);

/// The ops in `away` whose results `op` reads, directly or through one another, in the graph's order.
std::vector<OpId> asked_by(const Graph& graph, OpId op, const Again& away);

/// First runs in the graph's order; recomputed ops, also in that order, before the op that triggers them.
Plan plan_of(const Shape& shape, const Again& again);
/// The same with copies: out when the forward half has last read a value, back when a later step first reads
/// it; the device waits for each. Values that nothing reads later are not copied.
Plan plan_of(const Shape& shape, const Choice& choice);

}  // namespace remat::executors
