#include <gtest/gtest.h>

#include <map>
#include <queue>

#include "helpers/chains.h"
#include "planners/rotor/chain.h"
#include "remat/random.h"

namespace remat::rotor {
namespace {

/// Least extra time over all persistent schedules, by Dijkstra over what is stored; knows no recurrence.
class Brute {
 public:
  Brute(const Chain& chain, std::int64_t budget) : chain_(chain), budget_(budget), n_(size(chain)) {}

  std::optional<std::int64_t> solve() {
    State start{n_, 0, 0, {}, std::vector<int>(static_cast<std::size_t>(n_), -1)};
    start.checkpoint.assign(static_cast<std::size_t>(n_), false);
    start.checkpoint[0] = true;  // the input of the chain costs nothing here
    offer(0, start);
    while (!queue_.empty()) {
      const auto [time, state] = queue_.top();
      queue_.pop();
      if (best_[state] < time) continue;
      if (state.waiting == 0) return time;
      expand(time, state);
    }
    return std::nullopt;
  }

 private:
  struct State {
    int waiting;                   ///< stages whose backward half is to come
    int reached;                   ///< stages whose forward half has run
    int hand;                      ///< the stage whose input is at hand
    std::vector<bool> checkpoint;  ///< the input of the stage is stored
    std::vector<int> saved;        ///< option by which it is saved, or -1
    auto operator<=>(const State&) const = default;
  };
  using Entry = std::pair<std::int64_t, State>;

  static int size(const Chain& chain) { return static_cast<int>(chain.stages.size()); }
  static std::size_t at(int i) { return static_cast<std::size_t>(i); }
  const Stage& stage(int i) const { return chain_.stages[at(i)]; }
  const StageOption& option(int i, int o) const { return stage(i).options[at(o)]; }

  bool input_stored(const State& s, int i) const {
    return s.checkpoint[at(i)] || (i > 0 && s.saved[at(i - 1)] >= 0);
  }
  std::int64_t stored(const State& s) const {
    std::int64_t sum = 0;
    for (int i = 0; i < n_; ++i) {
      if (i > 0 && s.checkpoint[at(i)]) sum += stage(i - 1).output;
      if (s.saved[at(i)] >= 0) sum += option(i, s.saved[at(i)]).saved;
    }
    return sum;
  }
  bool fits(const State& s, int i, std::int64_t need) const {
    const std::int64_t floating = input_stored(s, i) ? 0 : stage(i - 1).output;
    return stored(s) + floating + need <= budget_;
  }
  void offer(std::int64_t time, const State& state) {
    const auto [found, is_new] = best_.try_emplace(state, time);
    if (!is_new && found->second <= time) return;
    found->second = time;
    queue_.push({time, state});
  }

  void expand(std::int64_t time, const State& s) {
    for (int i = 0; i < n_; ++i) {  // take up a stored input; before the first backward half none is left
      if (i == s.hand || !input_stored(s, i) || i >= s.waiting || s.waiting == n_) continue;
      State next = s;
      next.hand = i;
      offer(time, next);
    }
    const int i = s.hand;
    const bool first = i == s.reached;
    if (i < s.waiting) {
      if (!input_stored(s, i)) {
        State next = s;
        next.checkpoint[at(i)] = true;
        offer(time, next);
      }
      const std::int64_t around = chain_.around[at(s.waiting - 1)];
      if (i + 1 < s.waiting && fits(s, i, first ? stage(i).first_need : around + stage(i).pass_need)) {
        State next = s;
        next.hand = i + 1;
        next.reached = std::max(s.reached, i + 1);
        offer(time + (first ? stage(i).first_time : stage(i).pass_time), next);
      }
      for (std::size_t o = 0; o < stage(i).options.size(); ++o) {
        const StageOption& how = stage(i).options[o];
        if (!input_stored(s, i) || s.saved[at(i)] >= 0) continue;
        if (!fits(s, i, first ? how.first_need : around + how.forward_need)) continue;
        State next = s;
        next.saved[at(i)] = static_cast<int>(o);
        next.hand = std::min(i + 1, n_ - 1);
        next.reached = std::max(s.reached, i + 1);
        offer(time + how.extra_time, next);
      }
    }
    const int last = s.waiting - 1;
    if (s.reached < n_ || s.saved[at(last)] < 0 || !input_stored(s, last)) return;
    State next = s;
    next.saved[at(last)] = -1;
    if (stored(next) + option(last, s.saved[at(last)]).backward_need > budget_) return;
    if (last > 0) next.checkpoint[at(last)] = false;
    next.hand = 0;
    --next.waiting;
    offer(time, next);
  }

  const Chain& chain_;
  std::int64_t budget_;
  int n_;
  std::map<State, std::int64_t> best_;
  std::priority_queue<Entry, std::vector<Entry>, std::greater<>> queue_;
};

std::optional<std::int64_t> table_time(const Chain& chain, std::int64_t budget) {
  Limits limits;
  return ChainTable(chain, budget, 1000, limits).extra_time(budget);
}

class RotorChain : public ::testing::TestWithParam<int> {};

TEST_P(RotorChain, EqualsBruteForceOverPersistentSchedulesOnTwoThousandChains) {
  Random random(static_cast<std::uint64_t>(GetParam()));
  int feasible = 0, recomputed = 0;
  for (int round = 0; round < 2000; ++round) {
    const Chain chain = testing::random_chain(random, GetParam());
    const std::int64_t budget = random.between(8, 45);
    const auto truth = Brute(chain, budget).solve();
    ASSERT_EQ(table_time(chain, budget), truth) << "round " << round;
    feasible += truth.has_value();
    recomputed += truth.value_or(0) > 0;
  }
  EXPECT_GT(feasible, 1000);
  EXPECT_GT(recomputed, 200);
}

INSTANTIATE_TEST_SUITE_P(Options, RotorChain, ::testing::Values(1, 3));

/// Unit chain of revolve: a state of one slot before each step; a step can be saved only for its own turn. A
/// pass needs nothing beside checkpoints, hence -1 for the state it starts from.
Chain revolve_chain(int steps, std::int64_t checkpoints) {
  Chain chain;
  for (int i = 0; i < steps; ++i) {
    Stage stage{1, 1, 1, -1, -1, {{}}};
    stage.options[0].saved = checkpoints + 1;
    chain.stages.push_back(stage);
    chain.around.push_back(0);
  }
  return chain;
}

TEST(RotorChain, TakesAsManyStepsAsRevolveWhereAllStagesAreEqual) {
  // Griewank and Walther 2000: with c checkpoints, the chain's input among them, l steps take r l - C(c + r,
  // r
  // - 1) passes, r being the least number with C(c + r, c) >= l.
  const auto choose = [](std::int64_t n, std::int64_t k) {
    double value = 1;
    for (std::int64_t i = 1; i <= k; ++i)
      value = value * static_cast<double>(n - k + i) / static_cast<double>(i);
    return static_cast<std::int64_t>(value + 0.5);
  };
  for (std::int64_t checkpoints = 1; checkpoints <= 8; ++checkpoints) {
    for (int steps = 1; steps <= 60; steps += steps < 20 ? 1 : 7) {
      std::int64_t r = 0;
      while (choose(checkpoints + r, r) < steps) ++r;
      const std::int64_t runs = r == 0 ? 0 : r * steps - choose(checkpoints + r, r - 1);
      // The input of the chain costs no slot here, the state before the step that turns costs one.
      EXPECT_EQ(table_time(revolve_chain(steps, checkpoints), checkpoints), runs)
          << steps << " steps, " << checkpoints << " checkpoints";
    }
  }
}

TEST(RotorChain, SchedulesTakeTheTimeTheyPromiseAtEveryBudgetOfOneTable) {
  Random random(5);
  for (int round = 0; round < 100; ++round) {
    Chain chain = testing::random_chain(random, 2);
    while (chain.stages.size() < 30) {
      const Chain more = testing::random_chain(random, 2);
      chain.stages.insert(chain.stages.end(), more.stages.begin(), more.stages.end());
      chain.around.insert(chain.around.end(), more.around.begin(), more.around.end());
    }
    Limits limits;
    const ChainTable table(chain, 120, 1000, limits);
    std::optional<std::int64_t> before;
    for (std::int64_t budget = 0; budget <= 120; ++budget) {
      const auto time = table.extra_time(budget);
      const auto actions = table.schedule(budget);
      ASSERT_EQ(time.has_value(), actions.has_value());
      ASSERT_FALSE(before && !time);
      if (!time) continue;
      ASSERT_LE(*time, before.value_or(*time));
      before = time;
      std::int64_t sum = 0;
      std::size_t reached = 0;
      std::vector<int> backward(chain.stages.size(), 0);
      for (const Action& action : *actions) {
        const auto i = static_cast<std::size_t>(action.stage);
        const Stage& stage = chain.stages[i];
        if (action.kind == Action::Kind::kPass) sum += i == reached ? stage.first_time : stage.pass_time;
        if (action.kind == Action::Kind::kSave)
          sum += stage.options[static_cast<std::size_t>(action.option)].extra_time;
        if (action.kind == Action::Kind::kBackward) ++backward[i];
        reached = std::max(reached, i + 1);
      }
      ASSERT_EQ(sum, *time);
      ASSERT_EQ(backward, std::vector<int>(chain.stages.size(), 1));
    }
  }
}

TEST(RotorChain, RoundsToTheSafeSideWhereSlotsAreCoarse) {
  Random random(6);
  int coarser = 0;
  for (int round = 0; round < 300; ++round) {
    const Chain chain = testing::random_chain(random, 2);
    const std::int64_t budget = random.between(20, 60);
    Limits limits;
    const auto coarse = ChainTable(chain, budget, 7, limits).extra_time(budget);
    const auto exact = table_time(chain, budget);
    if (!coarse) continue;
    ASSERT_TRUE(exact);
    ASSERT_GE(*coarse, *exact);
    coarser += *coarse > *exact;
  }
  EXPECT_GT(coarser, 10);
}

TEST(RotorChain, AnswersForSmallerBudgetsWhereTheLimitsAreReached) {
  Random random(7);
  Chain chain;
  while (chain.stages.size() < 100) {
    const Chain more = testing::random_chain(random, 1);
    chain.stages.insert(chain.stages.end(), more.stages.begin(), more.stages.end());
    chain.around.insert(chain.around.end(), more.around.begin(), more.around.end());
  }
  Limits all;
  const ChainTable whole(chain, 499, 500, all);
  Limits half;
  half.set_work(all.work() / 2);
  const ChainTable part(chain, 499, 500, half);
  EXPECT_EQ(whole.largest_budget(), 499);
  EXPECT_LT(part.largest_budget(), 499);
  ASSERT_GT(part.largest_budget(), 100);
  EXPECT_EQ(part.extra_time(499), whole.extra_time(part.largest_budget()));
  EXPECT_EQ(table_bytes(1000, 500), std::int64_t{512} * 4 * 500'500);
}

}  // namespace
}  // namespace remat::rotor
