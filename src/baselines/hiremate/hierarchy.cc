#include "baselines/hiremate/hierarchy.h"

#include <algorithm>
#include <atomic>
#include <set>
#include <tuple>

#include "base/numbers.h"
#include "base/threads.h"
#include "base/topological.h"
#include "baselines/hiremate/same_groups.h"
#include "remat/error.h"

namespace remat::hiremate {

constexpr double kLeastOptions = 6;

Option keep_all_option(const Level& level) { return {level.forward, level.backward, "keep_all"}; }

namespace {

/// A refresh part makes everything that others read of the forward pass.
template <class Fail>
void check_refresh(const Level& level, const Option& option, const Fail& fail) {
  const Graph& graph = *level.training->graph;
  std::set<OpId> inside(level.forward.begin(), level.forward.end());
  inside.insert(level.backward.begin(), level.backward.end());
  const std::set<OpId> again(option.refresh.begin(), option.refresh.end());
  for (OpId op : level.forward) {
    for (ValueId v : graph.outputs[op]) {
      const bool leaves = std::any_of(graph.readers[v].begin(), graph.readers[v].end(),
                                      [&](OpId reader) { return !inside.contains(reader); });
      if (leaves && !graph.kept[v] && !again.contains(op))
        fail("does not make " + describe(graph, v) + " again in its refresh part");
    }
  }
}

}  // namespace

void check_option(const Level& level, const Option& option) {
  const Graph& graph = *level.training->graph;
  const auto fail = [&](const std::string& what) {
    throw UsageError("level solver " + (option.solver.empty() ? std::string("(no name)") : option.solver) +
                     ": an option " + what);
  };
  std::map<OpId, int> runs;
  for (const auto* ops : {&level.forward, &level.backward}) {
    for (OpId op : *ops) runs[op] = 0;
  }
  const auto step = [&](OpId op, bool backward_part) {
    const auto found = runs.find(op);
    if (found == runs.end()) fail("runs op " + std::to_string(op.index()) + ", which is not of the group");
    if (!backward_part && !level.training->is_forward(op))
      fail("runs " + describe(graph, op) + " in its forward part");
    if (found->second++ > 0 && !graph.recomputable[op])
      fail("runs " + describe(graph, op) + " again, which must not be recomputed");
    const auto require = [&](OpId before) {
      const auto needed = runs.find(before);
      if (needed != runs.end() && needed->second == 0)
        fail("runs " + describe(graph, op) + " before " + describe(graph, before));
    };
    for (ValueId v : graph.inputs[op]) {
      if (!graph.is_graph_input(v)) require(graph.producer[v]);
    }
    for (OpId before : graph.after[op]) require(before);
  };
  for (OpId op : option.forward) step(op, false);
  for (OpId op : level.forward) {
    if (runs[op] == 0) fail("does not run " + describe(graph, op) + " in its forward part");
  }
  for (OpId op : option.refresh) {
    if (!level.training->is_forward(op)) fail("runs " + describe(graph, op) + " in its refresh part");
    step(op, true);
  }
  for (OpId op : option.backward) step(op, true);
  for (const auto& [op, count] : runs) {
    if (count == 0) fail("does not run " + describe(graph, op));
  }
  if (option.refreshed()) check_refresh(level, option, fail);
}

Hierarchy::Hierarchy(const TrainingGraph& training, const Partition& partition, const Settings& settings,
                     Limits& limits)
    : training_(training),
      partition_(partition),
      settings_(settings),
      limits_(limits),
      same_(representatives(training, partition, limits)),
      ops_(partition.groups.size()),
      pool_(partition.groups.size()),
      levels_(partition.groups.size()),
      forward_(partition.groups.size()),
      backward_(partition.groups.size()) {
  for (GroupId g : partition.groups.ids()) {
    if (limits.reached()) return;
    const Group& group = partition.groups[g];
    if (group.layer) {
      forward_[g] = {group.layer};
      const auto backward = training.backward[group.layer];
      backward_[g].assign(backward.begin(), backward.end());
    } else if (g != partition.root) {
      ops_[g] = ops_of(training, partition, g);
    }
  }
}

/// Backward members in the graph's own order as far as their dependencies allow.
void Hierarchy::order_backward(Level& level) const {
  const Graph& graph = *training_.graph;
  std::map<OpId, int> member_of;
  for (std::size_t m = 0; m < level.members.size(); ++m) {
    for (OpId op : level.members[m].backward) member_of[op] = narrow<int>(m);
  }
  std::set<std::pair<int, int>> edges;  // (before, after)
  for (const auto& [op, m] : member_of) {
    const auto add = [&, after = m](OpId before) {
      const auto found = member_of.find(before);
      if (found != member_of.end() && found->second != after) edges.emplace(found->second, after);
    };
    for (ValueId v : graph.inputs[op]) {
      if (!graph.is_graph_input(v)) add(graph.producer[v]);
    }
    for (OpId before : graph.after[op]) add(before);
  }
  std::vector<std::vector<std::int32_t>> after(level.members.size());
  for (const auto& [before, m] : edges) after[at(before)].push_back(m);
  const auto first_op = [&](int m) {
    const auto& ops = level.members[at(m)].backward;
    return ops.empty() ? OpId() : *std::min_element(ops.begin(), ops.end());
  };
  for (int m : topological_order(after, first_op)) {
    const auto& ops = level.members[at(m)].backward;
    level.backward.insert(level.backward.end(), ops.begin(), ops.end());
  }
}

Level Hierarchy::level_of(GroupId group) const {
  Level level;
  level.training = &training_;
  level.group = group;
  level.is_root = group == partition_.root;
  const double all = real(partition_.groups[group].num_layers);
  for (GroupId g : partition_.groups[group].members) {
    Member member{g, forward_[g], backward_[g], {}};
    if (partition_.groups[g].layer) {
      member.options.push_back({member.forward, member.backward, "layer"});
    } else {
      const GroupId known = same_[g];
      const double share = real(partition_.groups[g].num_layers) / all;
      const double most = share * real(settings_.most_options);
      for (const Option& option :
           spread(pool_[known], static_cast<std::size_t>(std::max(kLeastOptions, most + 0.5)))) {
        member.options.push_back(known == g ? option : translated(option, ops_[known], ops_[g]));
      }
    }
    level.forward.insert(level.forward.end(), member.forward.begin(), member.forward.end());
    level.members.push_back(std::move(member));
  }
  order_backward(level);
  return level;
}

/// Budgets between keeping all and the least that any op needs: on the peak, and on what is saved.
std::vector<LevelBudget> Hierarchy::ladder(const Level& level) const {
  const OptionCost all = cost_of(training_, level.forward, level.backward, keep_all_option(level));
  const std::int64_t peak = std::max(all.forward, all.backward);
  std::int64_t least = 0;
  for (const Member& member : level.members) {
    for (const Option& option : member.options) {
      if (&option != &member.options.front()) continue;
      const OptionCost one = cost_of(training_, member.forward, member.backward, option);
      least = std::max({least, one.forward, one.backward - one.saved});
    }
  }
  std::vector<LevelBudget> budgets;
  // No fewer than the options that may be chosen among them: half of them refreshed, some of them dominated.
  const double share = real(partition_.groups[level.group].num_layers) / real(training_.num_layers());
  const auto wanted = static_cast<std::int64_t>(share * real(settings_.most_options) / 3);
  const std::int64_t rungs = std::max(settings_.budgets, wanted);
  for (std::int64_t i = 0; i < rungs; ++i) {
    const double rung = real(i) / real(rungs);
    const auto between = [&](std::int64_t low, std::int64_t high) {
      return Bytes(low + static_cast<std::int64_t>(rung * real(high - low)));
    };
    budgets.push_back({Bytes(capped(Wide{2} * peak)), between(0, all.saved)});
    if (i > 0) budgets.push_back({between(least, peak), std::nullopt});
  }
  return budgets;
}

void Hierarchy::solve_group(GroupId group, Limits& limits) {
  Level& level = levels_[group];
  std::vector<Costed> all;
  const auto offer = [&](Option option) {
    check_option(level, option);
    OptionCost cost = cost_of(training_, level.forward, level.backward, option);
    // Nothing is saved: the same as running the whole forward part again.
    if (cost.refreshed && cost.saved == 0) return;
    all.push_back({std::move(option), std::move(cost)});
  };
  offer(keep_all_option(level));
  const std::vector<LevelBudget> budgets = ladder(level);
  for (std::size_t i = 0; i < settings_.lower.size() && !limits.reached(); ++i) {
    const LevelSolver& solver = *settings_.lower[i];
    if (!solver.applicable(level)) continue;
    Limits part(limits, 1.0 / real(settings_.lower.size() - i));
    for (Option& option : solver.options(level, budgets, part)) {
      option.solver = solver.name();
      offer(std::move(option));
    }
  }
  pool_[group] = undominated(std::move(all));
}

void Hierarchy::solve_wave(const std::vector<GroupId>& wave, Limits& limits, double share) {
  for (GroupId g : wave) {
    if (limits_.reached()) return;
    levels_[g] = level_of(g);
  }
  const auto threads =
      std::min<std::size_t>(wave.size(), narrow<std::size_t>(std::max(1, settings_.threads)));
  // Every group has the same part of the limits, whoever solves it.
  Limits wave_limits(limits, share);
  const double part = std::min(1.0, real(threads) / real(wave.size()));
  const auto seconds = wave_limits.seconds_left();
  const auto work = wave_limits.work_left();
  std::atomic<std::size_t> next{0};
  run_threads(threads, [&](std::size_t) {
    for (std::size_t i = next++; i < wave.size() && !limits_.reached(); i = next++) {
      Limits own(wave_limits, 1);
      if (seconds) own.set_time(*seconds * part * 2);
      if (work) own.set_work(*work / std::ssize(wave));
      solve_group(wave[i], own);
    }
  });
}

/// Distinct groups by height. A group that is the same as another one is as high as that one, whatever is
/// inside; members have fewer layers than their group, so this is well defined.
std::vector<std::vector<GroupId>> Hierarchy::waves() const {
  std::vector<GroupId> by_size;
  for (GroupId g : partition_.groups.ids()) {
    if (!partition_.groups[g].layer && g != partition_.root) by_size.push_back(g);
  }
  std::stable_sort(by_size.begin(), by_size.end(), [&](GroupId a, GroupId b) {
    return std::tuple(partition_.groups[a].num_layers, same_[a] != a) <
           std::tuple(partition_.groups[b].num_layers, same_[b] != b);
  });
  IndexVector<GroupId, std::size_t> height(partition_.groups.size(), 0);
  std::vector<std::vector<GroupId>> waves;
  for (GroupId g : by_size) {
    if (same_[g] != g) {
      height[g] = height[same_[g]];
      continue;
    }
    for (GroupId member : partition_.groups[g].members) height[g] = std::max(height[g], height[member] + 1);
    if (waves.size() < height[g]) waves.resize(height[g]);
    waves[height[g] - 1].push_back(g);
  }
  return waves;
}

void Hierarchy::solve(Limits& share) {
  const auto all = waves();
  std::size_t left = 0;
  for (const auto& wave : all) left += wave.size();
  for (const auto& wave : all) {
    solve_wave(wave, share, real(wave.size()) / real(left));
    if (limits_.reached()) return;
    left -= wave.size();
    for (GroupId g : wave) {
      forward_[g] = levels_[g].forward;
      backward_[g] = levels_[g].backward;
    }
    for (GroupId g : partition_.groups.ids()) {
      const GroupId known = same_[g];
      if (known == g || forward_[known].empty() || !forward_[g].empty()) continue;
      Option order = translated({forward_[known], backward_[known], {}}, ops_[known], ops_[g]);
      forward_[g] = std::move(order.forward);
      backward_[g] = std::move(order.backward);
    }
  }
  levels_[partition_.root] = level_of(partition_.root);
}

HierarchyCounts Hierarchy::counts() const {
  HierarchyCounts counts;
  for (GroupId g : partition_.groups.ids()) {
    if (pool_[g].empty()) continue;
    ++counts.solved;
    counts.options += std::ssize(pool_[g]);
  }
  return counts;
}

}  // namespace remat::hiremate
