// What an executor lets run again, and the plan that follows from a choice of it.
#pragma once

#include <optional>
#include <utility>
#include <vector>

#include "remat/executor.h"

namespace remat::executors {

/// A forward op that runs again or not, by op.
using Again = IndexVector<OpId, bool>;

/// A graph through an executor.
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
  IndexVector<OpId, bool> reaches;        ///< the region's own backward half reads its results
  IndexVector<OpId, bool> read_again;     ///< it is read from where its region runs again on, whatever does
  /// What is held for another region that runs again later is not made twice: not both of a pair. The first
  /// makes what the second reads.
  std::vector<std::pair<OpId, OpId>> conflicts;

  bool is_forward(OpId op) const { return op < first_backward; }
};

/// Throws InputError naming what the graph lacks.
Shape shape_of(const Graph& graph, Executor executor);
/// Nothing where it lacks that.
std::optional<Shape> shape_if_any(const Graph& graph, Executor executor);

/// A choice of the executor that saves no less than `again` leaves out and that is one: a region runs again
/// up to the last result that its own backward half lacks, but for what is saved, and what is saved is read
/// again. Nothing where that does not settle.
std::optional<Again> settled(const Shape& shape, Again again);

/// What an op reads of those that are away, and what these read, in the graph's order.
std::vector<OpId> asked_by(const Graph& graph, OpId op, const Again& away);

/// First runs in the graph's order; what runs again, in that order too, before the op that asks for it.
Plan plan_of(const Shape& shape, const Again& again);

}  // namespace remat::executors
