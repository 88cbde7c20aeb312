// Bottom-up over a partition: levels, their solvers, options that go up, the plan that comes out.
#pragma once

#include <vector>

#include "baselines/hiremate/selection.h"

namespace remat::hiremate {

/// What was done, for the counters of the planner.
struct HierarchyCounts {
  std::int64_t solved = 0;   ///< distinct groups below the root
  std::int64_t options = 0;  ///< undominated ones of all distinct groups
};

/// All groups below the root, solved.
class Hierarchy {
 public:
  /// The settings must name solvers. `training`, `partition` and `limits` must outlive it. Once these limits
  /// are reached nothing here is of use any more, and what is at work ends.
  Hierarchy(const TrainingGraph& training, const Partition& partition, const Settings& settings,
            Limits& limits);

  /// Distinct groups from the bottom up, those of one height on several threads. Where this share of the
  /// limits is reached the rest keep everything.
  void solve(Limits& share);

  /// The root with the options of its members.
  const Level& root() const { return levels_[partition_.root]; }
  /// For each group the first one that is the same.
  const IndexVector<GroupId, GroupId>& same() const { return same_; }
  HierarchyCounts counts() const;

 private:
  void solve_group(GroupId group, Limits& limits);
  void solve_wave(const std::vector<GroupId>& wave, Limits& limits, double share);
  std::vector<std::vector<GroupId>> waves() const;
  Level level_of(GroupId group) const;
  void order_backward(Level& level) const;
  std::vector<LevelBudget> ladder(const Level& level) const;

  const TrainingGraph& training_;
  const Partition& partition_;
  const Settings& settings_;
  Limits& limits_;
  IndexVector<GroupId, GroupId> same_;
  IndexVector<GroupId, std::vector<OpId>> ops_;     ///< ascending, of groups of several layers
  IndexVector<GroupId, std::vector<Costed>> pool_;  ///< of distinct groups
  IndexVector<GroupId, Level> levels_;              ///< of distinct groups, and the root
  IndexVector<GroupId, std::vector<OpId>> forward_, backward_;
};

/// Throws UsageError naming the solver where the option is no valid run of the group.
void check_option(const Level& level, const Option& option);

/// Every op of the group once.
Option keep_all_option(const Level& level);

}  // namespace remat::hiremate
