#include "remat/store.h"

#include <gtest/gtest.h>

#include "helpers/graphs.h"
#include "remat/planner.h"

namespace remat {
namespace {

TEST(PlanStore, AnswersWithTheFastestPlanWithinTheBudget) {
  Random random(4);
  const Graph graph = testing::training_chain(8);
  PlanStore store;
  std::vector<Plan> added;
  for (int k = 0; k < 200; ++k) {
    added.push_back(testing::random_plan(graph, random, static_cast<int>(random.below(12))));
    store.add(graph, OrderMode::kFixed, added.back());
  }
  for (std::int64_t budget = 1; budget < 20; ++budget) {
    std::optional<Duration> least;
    for (const Plan& plan : added) {
      const Simulation cost = simulate(graph, plan);
      if (cost.peak <= Bytes(budget) && (!least || cost.duration < *least)) least = cost.duration;
    }
    const auto best = store.best(graph, OrderMode::kFixed, Bytes(budget));
    ASSERT_EQ(best.has_value(), least.has_value()) << budget;
    if (best) {
      EXPECT_EQ(simulate(graph, *best).duration, *least) << budget;
    }
  }
  EXPECT_FALSE(store.best(graph, OrderMode::kFree, Bytes(100))) << "orders are never mixed";
}

TEST(PlanStore, OffersThePlansAroundABudgetAsStarts) {
  const Graph graph =
      testing::make_graph({}, {{{}, {9}, 1}, {{0}, {1}, 1}, {{1}, {9}, 1}, {{0, 2}, {1}, 1}}, {});
  PlanStore store;
  EXPECT_TRUE(store.around(graph, OrderMode::kFixed, Bytes(1)).empty());
  const Plan all = keep_all_plan(graph);
  store.add(graph, OrderMode::kFixed, all);
  const Bytes peak = simulate(graph, all).peak;
  EXPECT_EQ(store.around(graph, OrderMode::kFixed, peak), std::vector{all});
  EXPECT_EQ(store.around(graph, OrderMode::kFixed, peak - Bytes(1)), std::vector{all});
}

TEST(PlanStore, ForgetsTheGraphUsedLongestAgo) {
  PlanStore store;
  const auto chain = [](std::size_t n) { return testing::training_chain(static_cast<int>(n)); };
  for (std::size_t n = 1; n <= PlanStore::kMaxGraphs + 1; ++n) {
    store.add(chain(n), OrderMode::kFixed, keep_all_plan(chain(n)));
  }
  EXPECT_TRUE(store.all(chain(1), OrderMode::kFixed).empty());
  EXPECT_EQ(store.all(chain(2), OrderMode::kFixed).size(), 1u);
}

TEST(PlanStore, AStepThatIsMeasuredAgainBeginsWithItsPlans) {
  const Graph graph = testing::training_chain(12, 4), again = testing::training_chain(12, 5, 3);
  Random random(8);
  PlanStore store;
  for (int k = 0; k < 50; ++k) {
    store.add(graph, OrderMode::kFixed,
              testing::random_plan(graph, random, static_cast<int>(random.below(12))));
  }
  const auto before = store.all(graph, OrderMode::kFixed), after = store.all(again, OrderMode::kFixed);
  ASSERT_FALSE(after.empty());
  EXPECT_EQ(after.back().plan, before.back().plan) << "the plan of the least peak above all";
  EXPECT_EQ(after.back().cost.peak, simulate(again, after.back().plan).peak);
  EXPECT_TRUE(store.all(again, OrderMode::kFree).empty());
  EXPECT_TRUE(store.all(testing::training_chain(13, 4), OrderMode::kFixed).empty());
}

TEST(SmallestKnownBudget, IsFoundAgainInNoTime) {
  const Graph graph = testing::training_chain(30, 7);
  const Problem impossible{.graph = &graph, .budget = Bytes(8)};
  PlanStore store;
  Limits limits;
  limits.set_work(300'000);
  const PlanResult result = make_plan_from(store, impossible, "auto", {}, limits);
  ASSERT_EQ(result.status, Status::kInfeasible);
  const auto smallest = smallest_known_budget(impossible, result, {}, limits, &store);
  ASSERT_TRUE(smallest);
  Limits none;
  none.set_work(1);
  EXPECT_TRUE(has_plan(make_plan_from(store, {&graph, *smallest}, "auto", {}, none)));
}

TEST(MakePlanFrom, StartsFromWhatTheStoreKnowsAndTellsItWhatIsFound) {
  const Graph graph = testing::training_chain(30);
  const Bytes half(simulate(graph, keep_all_plan(graph)).peak.count() / 2);
  PlanStore store;
  Limits enough;
  enough.set_work(300'000);
  const PlanResult found = make_plan_from(store, {&graph, half}, "search", {}, enough);
  ASSERT_TRUE(has_plan(found));
  EXPECT_EQ(store.best(graph, OrderMode::kFixed, half), found.plan);
  // With almost no work and a little more memory, the plan found before is returned, or a better one.
  Limits none;
  none.set_work(1);
  const PlanResult again = make_plan_from(store, {&graph, half + Bytes(1)}, "search", {}, none);
  ASSERT_TRUE(has_plan(again));
  EXPECT_LE(again.cost.duration, found.cost.duration);
  // For the least peak, the start is the known plan with the least peak.
  const Problem least{.graph = &graph, .objective = Objective::kPeak};
  EXPECT_LE(make_plan_from(store, least, "search", {}, none).cost.peak, found.cost.peak);
}

TEST(MakePlan, IsNeverWorseThanAPlanKnownBefore) {
  // Keep-all is best and fits, but the known plan is a slower one.
  const Graph graph =
      testing::make_graph({}, {{{}, {9}, 1}, {{0}, {1}, 1}, {{1}, {9}, 1}, {{0, 2}, {1}, 1}}, {});
  Plan drop;
  for (int op : {0, 1, 2, 0, 3}) drop.steps.push_back(OpId(op));
  const Bytes peak = simulate(graph, drop).peak;
  Problem problem{&graph, peak};
  Limits limits;
  const std::vector<Plan> starts{drop};
  problem.starts = starts;
  const PlanResult result = make_plan(problem, "keep_all", {}, limits);
  ASSERT_TRUE(has_plan(result));
  EXPECT_LE(result.cost.duration, simulate(graph, drop).duration);
  EXPECT_LE(result.cost.peak, peak);
}

}  // namespace
}  // namespace remat
