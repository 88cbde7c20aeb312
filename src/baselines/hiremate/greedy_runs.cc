#include "baselines/hiremate/greedy_runs.h"

#include <algorithm>
#include <map>
#include <tuple>

#include "base/numbers.h"
#include "base/portable_math.h"
#include "remat/random.h"

namespace remat::hiremate {
namespace {

/// What a solution decides; the runs follow.
struct Policy {
  std::vector<int> option;    ///< of each member
  std::vector<bool> again;    ///< the member saves nothing at first and runs again before its backward part
  std::vector<bool> dropped;  ///< data nodes not kept over the turn
};

struct Worth {
  double excess = 0;  ///< bytes over the budget, summed over steps
  double over = 0;    ///< bytes over the budget at the dearest step
  std::int64_t duration = 0;
};

constexpr int kTrials = 60'000;
constexpr double kPrice = 1, kHot = 1e-3, kCold = 5e-5;

class Greedy {
 public:
  Greedy(const Level& level, const LevelGraph& graph, Bytes budget, Limits& limits)
      : level_(level), graph_(graph), budget_(budget), limits_(limits) {
    for (const MemberShape& member : graph.members) {
      const auto fastest = std::min_element(
          member.options.begin(), member.options.end(), [](const OptionShape& a, const OptionShape& b) {
            return a.forward.duration + a.backward.duration < b.forward.duration + b.backward.duration;
          });
      policy_.option.push_back(narrow<int>(fastest - member.options.begin()));
    }
    policy_.again.assign(graph.members.size(), false);
    policy_.dropped.assign(graph.data.size(), false);
    worth_ = worth(policy_);
  }

  std::vector<HilpModel::Run> run(std::uint64_t seed) {
    while (worth_.excess > 0 && improve(false)) {
    }
    while (improve(true)) {
    }
    anneal(Random(seed));
    return runs_of(policy_);
  }

 private:
  /// The best single change: less excess per duration; or, within the budget, less duration.
  bool improve(bool faster) {
    Policy best;
    Worth best_worth;
    double best_score = 0;
    const auto consider = [&](const Policy& changed) {
      const Worth one = worth(changed);
      double score = 0;
      if (faster) {
        if (one.excess > worth_.excess) return;
        score = real(worth_.duration - one.duration);
      } else {
        const double longer = std::max(0.0, real(one.duration - worth_.duration));
        score = (worth_.excess - one.excess) / (longer + 1e-4 * real(worth_.duration));
      }
      if (score <= best_score) return;
      best_score = score;
      best_worth = one;
      best = changed;
    };
    Policy changed = policy_;
    for (std::size_t j = 0; j < graph_.members.size(); ++j) {
      const int before = changed.option[j];
      for (int o : indices(graph_.members[j].options)) {
        if (limits_.reached()) return false;
        changed.option[j] = o;
        if (o != before) consider(changed);
        if (!graph_.members[j].may_rerun || graph_.members[j].backward_node < 0 || refreshed(j, o)) continue;
        changed.again[j] = !changed.again[j];
        consider(changed);
        changed.again[j] = !changed.again[j];
      }
      changed.option[j] = before;
    }
    for (std::size_t d = 0; d < graph_.data.size() && !limits_.reached(); ++d) {
      if (!may_drop(d)) continue;
      changed.dropped[d] = !changed.dropped[d];
      consider(changed);
      changed.dropped[d] = !changed.dropped[d];
    }
    if (best_score <= 0) return false;
    policy_ = std::move(best);
    worth_ = best_worth;
    return true;
  }

  /// Random changes from what is there, bytes over the budget charged at a price; the best that fits stays.
  void anneal(Random random) {
    const auto scale = real(worth_.duration);
    const double price = kPrice * scale / real(budget_);
    const auto energy = [&](const Worth& w) { return real(w.duration) + price * w.over; };
    Policy now = policy_;
    Worth now_worth = worth_;
    std::vector<std::size_t> droppable;
    for (std::size_t d = 0; d < graph_.data.size(); ++d) {
      if (may_drop(d)) droppable.push_back(d);
    }
    for (int i = 0; i < kTrials && !limits_.reached(); ++i) {
      const double heat = scale * geometric(kHot, kCold, real(i) / kTrials);
      const Policy changed = changed_at_random(now, droppable, random);
      const Worth one = worth(changed);
      const double more = energy(one) - energy(now_worth);
      if (more > 0 && more >= heat * minus_log(random.unit() + 0x1.0p-54)) continue;
      now = changed;
      now_worth = one;
      if (std::tuple(one.over, one.duration) < std::tuple(worth_.over, worth_.duration)) {
        policy_ = now;
        worth_ = one;
      }
    }
  }

  Policy changed_at_random(const Policy& policy, const std::vector<std::size_t>& droppable, Random& random) {
    Policy changed = policy;
    const auto any = [&](const auto& things) {
      return narrow<std::size_t>(random.below(std::ssize(things)));
    };
    const auto any_option = [&](std::size_t j) { return narrow<int>(any(graph_.members[j].options)); };
    const auto kind = random.below(10);
    if (kind < 3 && !droppable.empty()) {
      const std::size_t d = droppable[any(droppable)];
      changed.dropped[d] = !changed.dropped[d];
      return changed;
    }
    const std::size_t j = any(graph_.members);
    if (kind == 3 && graph_.members[j].may_rerun && graph_.members[j].backward_node >= 0) {
      changed.again[j] = !changed.again[j];
      return changed;
    }
    changed.option[j] = any_option(j);
    if (kind < 7) {
      // What a refreshed option makes again need not be kept, what others do not make again had better be.
      const bool drop = refreshed(j, changed.option[j]);
      for (std::size_t d : droppable) {
        if (graph_.data[d].maker == narrow<int>(j)) changed.dropped[d] = drop;
      }
    }
    if (kind == 9) {
      const std::size_t other = any(graph_.members);
      changed.option[other] = any_option(other);
    }
    return changed;
  }

  bool may_drop(std::size_t d) const {
    const DataNode& data = graph_.data[d];
    return graph_.is_forward(data.maker) && !data.readers.empty() && data.readers.back() > graph_.turn &&
           graph_.members[at(data.maker)].may_rerun;
  }

  Worth worth(const Policy& policy) {
    const Option option = option_of(level_, graph_, runs_of(policy));
    std::vector<OpId> steps = option.forward;
    steps.insert(steps.end(), option.backward.begin(), option.backward.end());
    const Plan plan{IndexVector<StepId, OpId>(std::move(steps))};
    IndexVector<StepId, Bytes> memory;
    Worth worth;
    worth.duration = simulate(*level_.training->graph, plan, memory).duration.count();
    for (Bytes bytes : memory) {
      if (bytes <= budget_) continue;
      const auto over = real((bytes - budget_).count());
      worth.excess += over;
      worth.over = std::max(worth.over, over);
    }
    limits_.spend(1 + std::ssize(plan.steps) / 2);
    return worth;
  }

  std::vector<HilpModel::Run> runs_of(const Policy& policy) const {
    std::vector<HilpModel::Run> runs;
    for (int j = 0; j < graph_.turn; ++j) {
      const auto i = narrow<std::size_t>(j);
      const bool saves = !again(policy, i) && has_phantom(j, policy.option[i]);
      runs.push_back({j, j, saves ? policy.option[i] : unsaved(j)});
    }
    std::vector<bool> there(graph_.data.size());
    for (std::size_t d = 0; d < there.size(); ++d) there[d] = !policy.dropped[d];
    std::vector<bool> done(graph_.members.size(), false);
    std::vector<bool> turned(graph_.members.size(), false);  // something of it ran again
    for (int t = graph_.turn + 1; t < graph_.num_nodes(); ++t) {
      const int j = graph_.member_of[at(t)];
      const auto i = narrow<std::size_t>(j);
      std::map<int, int> phase;  // option by node
      if (again(policy, i) && has_phantom(j, policy.option[i])) {
        require_run(policy, j, policy.option[i], done, there, phase);
      } else if (refreshed(i, policy.option[i]) && !turned[i]) {
        require_run(policy, j, unsaved(j) + 1 + policy.option[i], done, there, phase);
      }
      const RunShape& backward = graph_.members[i].options[at(policy.option[i])].backward;
      for (int d : backward.reads) require(policy, d, done, there, phase);
      for (const auto& [node, option] : phase) {
        runs.push_back({t, node, option});
        turned[at(node)] = true;
        for (std::size_t d = 0; d < there.size(); ++d) there[d] = there[d] || graph_.data[d].maker == node;
      }
      runs.push_back({t, t, policy.option[i]});
      done[i] = true;
    }
    return runs;
  }

  bool refreshed(std::size_t j, int option) const { return graph_.members[j].options[at(option)].refreshed; }
  bool again(const Policy& policy, std::size_t j) const {
    return policy.again[j] && !refreshed(j, policy.option[j]);
  }
  bool has_phantom(int j, int option) const {
    const MemberShape& member = graph_.members[at(j)];
    return member.backward_node >= 0 && member.options[at(option)].saved > 0;
  }
  int unsaved(int j) const { return narrow<int>(graph_.members[at(j)].options.size()); }

  void require(const Policy& policy, int d, const std::vector<bool>& done, const std::vector<bool>& there,
               std::map<int, int>& phase) const {
    const int maker = graph_.data[at(d)].maker;
    if (there[at(d)] || !graph_.is_forward(maker) || phase.contains(maker)) return;
    const auto i = narrow<std::size_t>(maker);
    const MemberShape& member = graph_.members[i];
    const auto o = narrow<std::size_t>(policy.option[i]);
    const bool saved = !again(policy, i) && !done[i] && has_phantom(maker, policy.option[i]);
    const bool refresh = saved && !member.options[o].refresh_steps.empty();
    require_run(policy, maker, refresh ? unsaved(maker) + 1 + policy.option[i] : unsaved(maker), done, there,
                phase);
  }

  /// The run, and before it runs that make what it reads.
  void require_run(const Policy& policy, int node, int option, const std::vector<bool>& done,
                   const std::vector<bool>& there, std::map<int, int>& phase) const {
    phase[node] = option;
    const MemberShape& member = graph_.members[at(node)];
    const auto o = narrow<std::size_t>(option), n = member.options.size();
    const RunShape& shape = o < n    ? member.options[o].forward
                            : o == n ? member.unsaved
                                     : member.options[o - n - 1].refresh;
    for (int d : shape.reads) require(policy, d, done, there, phase);
  }

  const Level& level_;
  const LevelGraph& graph_;
  const Bytes budget_;
  Limits& limits_;
  Policy policy_;
  Worth worth_;
};

}  // namespace

Option option_of(const Level& level, const LevelGraph& graph, const std::vector<HilpModel::Run>& runs) {
  Option option;
  option.solver = "h_ilp";
  for (const HilpModel::Run& run : runs) {
    const auto j = narrow<std::size_t>(graph.member_of[at(run.node)]);
    const Member& member = level.members[j];
    const auto o = narrow<std::size_t>(run.option), n = member.options.size();
    const std::vector<OpId>& steps = o == n  ? member.forward
                                     : o > n ? graph.members[j].options[o - n - 1].refresh_steps
                                     : graph.is_forward(run.node) ? member.options[o].forward
                                                                  : member.options[o].backward;
    auto& into = run.phase < graph.turn ? option.forward : option.backward;
    into.insert(into.end(), steps.begin(), steps.end());
  }
  return option;
}

std::vector<HilpModel::Run> greedy_runs(const Level& level, const LevelGraph& graph, Bytes budget,
                                        std::uint64_t seed, Limits& limits) {
  return Greedy(level, graph, budget, limits).run(seed);
}

}  // namespace remat::hiremate
