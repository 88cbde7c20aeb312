// The graph that one round of H-Partition groups: nodes are layers or the groups of the round before.
#pragma once

#include <cstdint>
#include <vector>

#include "remat/hiremate.h"

namespace remat::hiremate {

/// Nodes are numbered topologically. `values` are the forward values that more than one node touches.
struct PhaseGraph {
  struct Value {
    std::int64_t bytes;
    std::int32_t maker;
    std::vector<std::int32_t> readers;  ///< other nodes, ascending
  };
  std::vector<std::vector<std::int32_t>> before;  ///< ascending; soft edges too
  std::vector<Value> values;
  std::vector<std::vector<std::int32_t>> made, read;  ///< values by node
  std::vector<std::int64_t> weight;                   ///< layers of a node
  std::vector<Nested> tree;                           ///< what a node stands for

  std::size_t size() const { return before.size(); }
};

/// Layers, with two kinds of constants (layers that no gradient reaches and that read only such layers, as
/// masks and positions do) taken care of, so that they do not hide the structure of the rest: one that a
/// single layer uses is one node with that layer, as is a source of a layer that has other predecessors; the
/// others come first, and edges from them are left out like those from inputs of the model (appendix C.1.3).
/// They are a lower set, so that groups remain convex.
PhaseGraph phase_graph(const TrainingGraph& training);

/// Runs of at most `most` nodes of the topological order with the least bytes over the cuts: convex together.
/// The block of each node. O(nodes * most + edges).
std::vector<std::int32_t> cheapest_runs(const PhaseGraph& graph, std::int64_t most);

/// Nodes with the same block become one node; blocks are numbered 0, 1, ... and must be convex together.
PhaseGraph contracted(PhaseGraph graph, const std::vector<std::int32_t>& block);

/// Immediate dominators: the last node that lies on all paths to a node from where the graph begins, which is
/// the closest common ancestor of its predecessors among dominators; -1 where there is none. O(edges log n).
std::vector<std::int32_t> immediate_dominators(const PhaseGraph& graph);

}  // namespace remat::hiremate
