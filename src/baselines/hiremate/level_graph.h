// A level as H-ILP and rk_rotor see it (appendix B.1): compute nodes, data nodes, phantom nodes.
//
//   forward of member 0, 1, ..., m - 1     the turn (everything around the group)     backward of members
//   nodes 0 ... m - 1                      node m                                      nodes m + 1 ...
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "base/numbers.h"
#include "remat/hiremate.h"

namespace remat::hiremate {

/// A value of one member that others read: other members, or what lies outside the group. In our graphs each
/// contribution to a gradient is a value and their sum is an op, so a data node has one maker.
struct DataNode {
  ValueId value;
  std::int64_t bytes = 0;
  int maker = 0;
  std::vector<int> readers;  ///< nodes that read it under some option, ascending; the turn for what leaves
  bool at_end = false;       ///< a gradient that leaves the group
};

/// Memory at some step of a run beyond what was in memory before it, if the data nodes in `released` (not
/// used by later steps of the run) are counted as they are after the run. Appendix B.3, correction terms.
struct Moment {
  std::int64_t own = 0;
  std::vector<int> released;
};

/// Stands for every duration that is longer.
inline constexpr std::int64_t kLongest = kMaxCount - 1;

/// One run of a node's steps.
struct RunShape {
  std::int64_t duration = 0;  ///< at most kLongest
  std::vector<int> reads;     ///< data nodes, ascending
  std::vector<Moment> moments;
};

/// A member under one of its options.
struct OptionShape {
  RunShape forward;  ///< that saves what the backward steps read
  RunShape backward;
  std::int64_t saved = 0;  ///< bytes of the phantom node
  /// Makes the member's outputs again from what is saved (not in the paper, where an output that is gone
  /// costs the whole forward part). Without steps where that saves nothing.
  RunShape refresh;
  std::vector<OpId> refresh_steps;
  /// The refresh runs exactly once, between the two parts, and turns the phantom node into one of
  /// `saved_after` bytes, which the backward part reads.
  bool refreshed = false;
  std::int64_t saved_after = 0;
};

struct MemberShape {
  RunShape unsaved;  ///< forward, nothing saved
  std::vector<OptionShape> options;
  bool may_rerun = true;
  std::int64_t kept_forward = 0, kept_backward = 0;  ///< bytes that stay to the end of all
  int backward_node = -1;                            ///< -1: no backward ops
};

struct LevelGraph {
  int turn = 0;
  std::vector<int> member_of;  ///< of each node; -1 for the turn
  std::vector<MemberShape> members;
  std::vector<DataNode> data;
  int num_nodes() const { return narrow<int>(member_of.size()); }
  bool is_forward(int node) const { return node < turn; }
};

/// `corrections`: one moment per set of released data nodes, as the paper does at the top level; without,
/// one per run, with all its inputs and outputs in memory at once.
/// Empty where the limits were reached on the way.
LevelGraph level_graph(const Level& level, bool corrections, Limits* limits = nullptr);

/// What an option costs by itself: the yardstick for budgets and for the choice among options.
struct OptionCost {
  std::int64_t duration = 0;
  bool refreshed = false;
  std::int64_t saved = 0;      ///< between forward and backward pass
  std::int64_t forward = 0;    ///< peak of the forward steps, of what the group makes
  std::int64_t backward = 0;   ///< peak of the steps after the forward part, what is saved included
  std::vector<ValueId> reads;  ///< values from outside and own outputs that the backward steps read
};
OptionCost cost_of(const TrainingGraph& training, const std::vector<OpId>& forward_ops,
                   const std::vector<OpId>& backward_ops, const Option& option);

}  // namespace remat::hiremate
