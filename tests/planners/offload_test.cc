// Joint plans for problems with a host, by `auto`.
#include <gtest/gtest.h>

#include "helpers/copies_oracle.h"
#include "helpers/graphs.h"
#include "remat/generate.h"
#include "remat/planner.h"

namespace remat {
namespace {

constexpr std::int64_t kBytesPerUs = 1'000'000;

PlanResult planned(const Problem& problem, std::int64_t work) {
  Limits limits;
  limits.set_work(work);
  return make_plan(problem, "auto", {}, limits);
}

Problem problem_of(const Graph& graph, Bytes budget, const Host& host) {
  Problem problem{.graph = &graph, .budget = budget};
  problem.host = host;
  return problem;
}

TEST(Offload, OnTinyGraphsIsNeverBetterThanBruteForceAndMostlyAsGood) {
  Random random(7);
  int points = 0, equal = 0, found = 0;
  for (int i = 0; i < 60; ++i) {
    Graph graph = testing::random_graph(random, {.min_ops = 3, .max_ops = 5, .max_values = 4, .over = 0});
    graph.time_unit = "us";
    const Host host{.out = kBytesPerUs * (1 + random.below(6)),
                    .in = kBytesPerUs * (1 + random.below(6)),
                    .budget = std::nullopt,
                    .shared = random.chance(0.3)};
    // All values and a rerun: nearly everything that such small graphs have.
    for (const auto& [peak, least] : testing::best_with_copies(graph, host, 1, 2)) {
      const PlanResult result = planned(problem_of(graph, peak, host), 3000);
      ++points;
      if (!has_plan(result)) continue;
      ++found;
      ASSERT_LE(result.cost.peak, peak);
      equal += result.cost.duration <= least;
    }
  }
  RecordProperty("points", points);
  RecordProperty("found", found);
  RecordProperty("equal", equal);
  EXPECT_GE(found, points * 9 / 10);
  EXPECT_GE(equal, points * 8 / 10);
}

TEST(Offload, PlansOfTheSameSeedAndWorkAreTheSame) {
  Graph graph = testing::training_chain(16, 1000, 10);
  graph.time_unit = "us";
  const Problem problem = problem_of(
      graph, Bytes(9000), {.out = 50 * kBytesPerUs, .in = 50 * kBytesPerUs, .budget = std::nullopt});
  const PlanResult first = planned(problem, 2000), second = planned(problem, 2000);
  ASSERT_TRUE(has_plan(first));
  EXPECT_EQ(first.plan, second.plan);
  EXPECT_EQ(first.duration_bound.duration, second.duration_bound.duration);
}

TEST(Offload, CopiesWhereTheLinkIsFastAndRecomputesWhereItIsNot) {
  Graph graph = testing::training_chain(16, 1000, 10);
  graph.time_unit = "us";
  const Bytes budget(9000);
  const auto at = [&](std::int64_t rate) {
    return planned(problem_of(graph, budget, {.out = rate, .in = rate, .budget = std::nullopt}), 5000);
  };
  const PlanResult fast = at(1000 * kBytesPerUs), slow = at(1);
  EXPECT_EQ(fast.status, Status::kOptimal);
  EXPECT_EQ(fast.cost.duration, graph.base_duration);
  EXPECT_GT(fast.cost.traffic.out, Bytes());
  ASSERT_TRUE(has_plan(slow));
  EXPECT_TRUE(slow.plan->copies.empty());
  Problem without{.graph = &graph, .budget = budget};
  EXPECT_LE(fast.cost.duration, planned(without, 5000).cost.duration);
}

TEST(Offload, CopiesNothingThatTheGraphForbids) {
  Graph graph = testing::training_chain(16, 1000, 10);
  graph.time_unit = "us";
  Random random(5);
  for (ValueId v : graph.values()) graph.copyable[v] = random.chance(0.5);
  const Host host{.out = 1000 * kBytesPerUs, .in = 1000 * kBytesPerUs, .budget = std::nullopt};
  const PlanResult result = planned(problem_of(graph, Bytes(12000), host), 5000);
  ASSERT_TRUE(has_plan(result));
  EXPECT_FALSE(result.plan->copies.empty());
  for (const Copy& copy : result.plan->copies) EXPECT_TRUE(graph.copyable[copy.value]) << copy.value.index();
}

TEST(Offload, KeepsWithinTheBudgetOfTheHost) {
  Graph graph = testing::training_chain(16, 1000, 10);
  graph.time_unit = "us";
  Host host{.out = 1000 * kBytesPerUs, .in = 1000 * kBytesPerUs, .budget = Bytes(3000)};
  const PlanResult result = planned(problem_of(graph, Bytes(12000), host), 5000);
  ASSERT_TRUE(has_plan(result));
  EXPECT_LE(result.cost.traffic.host_peak, Bytes(3000));
}

TEST(Offload, BelowTheFloorOfTheOpsIsInfeasibleAndNothingElseIs) {
  Graph graph = testing::training_chain(6, 1000, 10);
  graph.time_unit = "us";
  const Host host{.out = kBytesPerUs, .in = kBytesPerUs, .budget = std::nullopt};
  const PlanResult result = planned(problem_of(graph, Bytes(1999), host), 1000);
  EXPECT_EQ(result.status, Status::kInfeasible);
  EXPECT_EQ(result.peak_bound.argument, "floor");
}

}  // namespace
}  // namespace remat
