// Groups that are the same up to names: solved once, plans translated (appendix C.1.1).
#pragma once

#include <vector>

#include "remat/hiremate.h"

namespace remat::hiremate {

/// For each group the first group of the partition with the same canonical form; itself where there is none.
/// The form lists the group's ops in the graph's order, each as its sizes, duration and flags and where its
/// inputs come from (op and output within the group, or the rank of the input from outside), and which
/// outputs are read outside, so that an option of one group is one of the other, op by op. Groups of one
/// layer stand for themselves. O(ops of all groups log).
/// Once `limits` are reached, the groups that are left stand for themselves.
IndexVector<GroupId, GroupId> representatives(const TrainingGraph& training, const Partition& partition,
                                              Limits& limits);

/// `same`: the representatives.
PartitionSummary summarize(const Partition& partition, const IndexVector<GroupId, GroupId>& same);

/// Ops of a group, forward and backward, ascending.
std::vector<OpId> ops_of(const TrainingGraph& training, const Partition& partition, GroupId group);

/// `option` of a group with the ops `from`, for the group with the ops `to` and the same form.
Option translated(const Option& option, const std::vector<OpId>& from, const std::vector<OpId>& to);

}  // namespace remat::hiremate
