// Maximum flow between two nodes of a small network, for minimum cuts.
#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <utility>
#include <vector>

#include "base/numbers.h"
#include "remat/check.h"

namespace remat {

/// Dinic's algorithm on integer capacities. The arcs are given once; capacities may change between flows.
class MaxFlow {
 public:
  using Node = std::int32_t;
  using Arc = std::int32_t;
  using Amount = std::int64_t;

  /// More than any flow may be: such arcs are never cut.
  static constexpr Amount kUnlimited = std::numeric_limits<Amount>::max();
  static constexpr Node kSource = 0, kSink = 1;

  /// Nodes are 0 (source), 1 (sink), 2, ...
  Node add_node() { return num_nodes_++; }
  Arc add_arc(Node from, Node to);
  void set_capacity(Arc arc, Amount capacity) {
    REMAT_ASSERT(capacity >= 0, arc, capacity);
    capacity_[at(arc)] = capacity;
  }

  /// The value of a maximum flow, or -1 after visiting `most_ticks` arcs. Finite capacities must sum to less
  /// than kUnlimited.
  Amount solve(std::int64_t most_ticks);
  /// Polled every few thousand arcs; if it returns true, the flow ends as if out of ticks.
  void set_stop(std::function<bool()> stop) { stop_ = std::move(stop); }
  /// After `solve`: the node is on the source's side of the minimum cut with the fewest nodes there.
  bool on_source_side(Node node) const { return level_[at(node)] >= 0; }
  /// After `solve`: what flows through the arc.
  Amount flow(Arc arc) const { return capacity_[at(arc)] - half_[at(position_[at(arc)])].left; }
  /// Arcs visited in all flows so far.
  std::int64_t ticks() const { return ticks_; }

 private:
  struct Half {
    Node to;
    std::int32_t twin;
    Amount left;
  };
  void build();
  bool find_levels();
  Amount push_paths();
  /// Every flow is within its arc's capacity and conserved at every node, and the cut has the value of the
  /// flow: together these prove that both are optimal.
  bool is_maximum(Amount flow) const;

  Node num_nodes_ = 2;
  std::vector<Node> from_, to_;
  std::vector<Amount> capacity_;
  bool built_ = false;
  std::vector<std::int32_t> begin_;     ///< by node, of its half arcs
  std::vector<Half> half_;              ///< arcs and their twins, by node
  std::vector<std::int32_t> position_;  ///< by arc, of its forward half
  std::vector<std::int32_t> level_, next_;
  std::vector<Node> queue_;
  std::vector<std::int32_t> path_;
  std::int64_t ticks_ = 0, stop_at_ = 0;
  std::function<bool()> stop_ = [] { return false; };
};

}  // namespace remat
