// What a partition is like, in numbers.
#include <algorithm>

#include "baselines/hiremate/same_groups.h"
#include "remat/hiremate.h"

namespace remat::hiremate {

PartitionSummary summarize(const TrainingGraph& training, const Partition& partition) {
  Limits none;
  return summarize(partition, representatives(training, partition, none));
}

PartitionSummary summarize(const Partition& partition, const IndexVector<GroupId, GroupId>& same) {
  PartitionSummary summary;
  IndexVector<GroupId, std::int64_t> depth(partition.groups.size(), 1);
  for (GroupId g : partition.groups.ids()) {
    const Group& group = partition.groups[g];
    if (group.parent) depth[g] = depth[group.parent] + 1;
    if (group.layer) continue;
    ++summary.groups;
    summary.levels = std::max(summary.levels, depth[g]);
    summary.largest = std::max(summary.largest, std::ssize(group.members));
  }
  for (GroupId g : partition.groups.ids()) {
    if (!partition.groups[g].layer && same[g] == g) ++summary.distinct;
  }
  return summary;
}

}  // namespace remat::hiremate
