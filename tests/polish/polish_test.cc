#include "polish/polish.h"

#include <gtest/gtest.h>

#include "helpers/graphs.h"
#include "polish/range_max.h"

namespace remat::polish {
namespace {

Plan without(const Plan& plan, StepId step) {
  Plan result;
  for (StepId s : plan.steps.ids()) {
    if (s != step) result.steps.push_back(plan.steps[s]);
  }
  return result;
}

bool is_first(const Plan& plan, StepId step) {
  for (StepId s(0); s < step; ++s) {
    if (plan.steps[s] == plan.steps[step]) return false;
  }
  return true;
}

/// By definition: erasing the step changes no instance that another step, or the end, sees.
bool is_unread(const Graph& graph, const Plan& plan, StepId step) {
  for (ValueId v : graph.outputs[plan.steps[step]]) {
    bool newest = true;
    for (StepId s = step.next(); s < StepId(static_cast<std::int64_t>(plan.steps.size())); ++s) {
      for (ValueId read : graph.inputs[plan.steps[s]]) {
        if (read == v) return false;
      }
      if (plan.steps[s] == plan.steps[step]) {
        newest = false;
        break;
      }
    }
    if (newest && graph.kept[v]) return false;
  }
  return true;
}

TEST(RangeMax, AgreesWithAPlainVector) {
  Random random(1);
  for (int round = 0; round < 50; ++round) {
    std::vector<std::int64_t> plain(static_cast<std::size_t>(random.between(1, 70)));
    for (auto& x : plain) x = random.between(-50, 50);
    RangeMax tree(plain);
    for (int i = 0; i < 200; ++i) {
      const auto begin = static_cast<std::size_t>(random.below(static_cast<std::int64_t>(plain.size()) + 1));
      const auto end = static_cast<std::size_t>(
          random.between(static_cast<std::int64_t>(begin), static_cast<std::int64_t>(plain.size())));
      const std::int64_t amount = random.between(-20, 20);
      tree.add(begin, end, amount);
      for (std::size_t j = begin; j < end; ++j) plain[j] += amount;
      const auto from = static_cast<std::size_t>(random.below(static_cast<std::int64_t>(plain.size())));
      std::int64_t most = RangeMax::kNothing;
      for (std::size_t j = from; j < plain.size(); ++j) most = std::max(most, plain[j]);
      ASSERT_EQ(tree.max(from, plain.size()), most);
    }
  }
}

TEST(WithoutUnreadSteps, LeavesNoUnreadRecomputationAndEveryFirstRun) {
  Random random(2);
  for (int round = 0; round < 500; ++round) {
    const Graph graph = testing::random_graph(random);
    const Plan plan = testing::random_plan(graph, random, 12);
    const Plan small = without_unread_steps(graph, plan);
    ASSERT_FALSE(validate(graph, small, OrderMode::kFixed));
    for (StepId s : small.steps.ids()) ASSERT_TRUE(is_first(small, s) || !is_unread(graph, small, s));
    ASSERT_EQ(without_unread_steps(graph, small), small);
  }
}

TEST(BuyBack, StaysWithinTheBudgetAndLeavesNothingToErase) {
  Random random(3);
  Limits limits;
  int erased = 0;
  for (int round = 0; round < 1500; ++round) {
    const Graph graph = testing::random_graph(random);
    const Plan plan = testing::random_plan(graph, random, 15);
    const Simulation before = simulate(graph, plan);
    const Bytes budget(before.peak.count() + random.between(-2, 6));
    const Plan bought = buy_back(graph, plan, budget, limits);
    ASSERT_FALSE(validate(graph, bought, OrderMode::kFixed));
    const Simulation after = simulate(graph, bought);
    // Dropping unread steps may lengthen no life; so the limit is the plan's own peak at most.
    ASSERT_LE(after.peak, std::max(budget, before.peak));
    ASSERT_LE(after.duration, before.duration);
    erased += static_cast<int>(plan.steps.size() - bought.steps.size());
    const Bytes limit = std::max(budget, simulate(graph, without_unread_steps(graph, plan)).peak);
    for (StepId s : bought.steps.ids()) {
      if (is_first(bought, s)) continue;
      const Plan shorter = without(bought, s);
      ASSERT_GT(simulate(graph, shorter).peak, limit)
          << "step " << s.index() << " of op " << bought.steps[s].index();
    }
  }
  EXPECT_GT(erased, 5000);
}

TEST(BuyBack, RestoresKeepAllWhereTheBudgetAllowsIt) {
  Random random(4);
  Limits limits;
  for (int round = 0; round < 200; ++round) {
    const Graph graph = testing::random_graph(random);
    const Plan plan = testing::random_plan(graph, random, 15);
    ASSERT_EQ(buy_back(graph, plan, Bytes(1'000'000), limits), keep_all_plan(graph));
  }
}

}  // namespace
}  // namespace remat::polish
