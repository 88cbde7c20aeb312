// The memory of a graph's steps in small integers, for the tracker: bundles, pseudo steps, scaled bytes.
#pragma once

#include <cstdint>

#include "remat/graph.h"
#include "remat/plan.h"

namespace remat {

/// A bundle: outputs of one op that the same ops read and that are all kept or all not. They are alive at
/// the same steps in every plan, so one life and one sum of bytes stand for them all.
using BundleId = Id<struct BundleTag>;

/// The graph as the tracker sees it. Beside the graph's ops there are two pseudo ops: `begin_op` is the
/// first step and `end_op` the last of every sequence, and `end_op` reads all kept outputs. So every step
/// has a neighbour on both sides, and the life of a kept output ends at a reader like every other life.
/// (The memory of `end_op`, the kept outputs alone, is never over that of the step before it.)
struct StepModel {
  explicit StepModel(const Graph& graph);

  const Graph* graph;
  OpId begin_op, end_op;
  /// Greatest common divisor of all sizes; amounts below are multiples of it.
  std::int64_t unit = 1;
  /// True where the keep-all peak, in units, leaves room in 32 bits (see StepBlocks).
  bool narrow = false;

  IndexVector<OpId, std::int64_t> duration;
  /// What a step adds to the instances that cross it: all outputs and the workspace, in units.
  IndexVector<OpId, std::int64_t> own;
  IndexVector<OpId, std::int64_t> state;     ///< of its generator, in units; held only if it runs again
  IndexVector<OpId, BundleId> first_bundle;  ///< bundles of op are [first_bundle[op], first_bundle[op + 1])
  Rows<OpId, BundleId> inputs;               ///< graph inputs left out
  Rows<OpId, OpId> after;
  Rows<OpId, OpId> before;  ///< transposed `after`
  IndexVector<BundleId, OpId> producer;
  IndexVector<BundleId, std::int64_t> units;
  Rows<BundleId, OpId> readers;
  /// Units that a step takes less if it is the last to read an instance of a bundle.
  struct Overlap {
    BundleId bundle;
    std::int64_t units;
  };
  Rows<OpId, Overlap> overlaps;

  /// The overlap of a step of the op that is the last to read an instance of the bundle; mostly 0.
  std::int64_t overlap(OpId op, BundleId bundle) const {
    for (const Overlap& one : overlaps[op]) {
      if (one.bundle == bundle) return one.units;
    }
    return 0;
  }
  IdRange<BundleId> bundles(OpId op) const { return {first_bundle[op], first_bundle[op.next()]}; }
  std::int64_t num_bundles(OpId op) const { return bundles(op).size(); }
  bool recomputable(OpId op) const { return op < begin_op && graph->recomputable[op]; }
  /// The largest number of units that is within `budget`; negative where not even the inputs fit.
  std::int64_t budget_units(Bytes budget) const;

 private:
  void add_overlaps(const IndexVector<ValueId, BundleId>& bundle_of);
};

}  // namespace remat
