// What an executor can recompute, and the plan of each choice.
#pragma once

#include <optional>
#include <utility>
#include <vector>

#include "remat/executor.h"

namespace remat::executors {

/// Which forward ops are recomputed, by op.
using Again = IndexVector<OpId, bool>;

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

  bool is_forward(OpId op) const { return op < first_backward; }
};

/// Throws InputError naming what the graph lacks.
Shape shape_of(const Graph& graph, Executor executor);
/// The same; nothing if the graph lacks it.
std::optional<Shape> shape_if_any(const Graph& graph, Executor executor);

/// The choice that the executor carries out for `again`: a region is recomputed up to the last missing result
/// that its own backward half reads, results that nothing reads again are not saved, and of a conflict the
/// first op is saved. Nothing if the iteration does not converge.
std::optional<Again> settled(const Shape& shape, Again again);

/// The ops in `away` whose results `op` reads, directly or through one another, in the graph's order.
std::vector<OpId> asked_by(const Graph& graph, OpId op, const Again& away);

/// First runs in the graph's order; recomputed ops, also in that order, before the op that triggers them.
Plan plan_of(const Shape& shape, const Again& again);

}  // namespace remat::executors
