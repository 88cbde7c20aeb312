#include <gtest/gtest.h>

#include "helpers/graphs.h"
#include "helpers/oracle.h"
#include "helpers/reproduce.h"
#include "planners/evict/engine.h"

namespace remat::evict {
namespace {

std::vector<Policy> all_policies() {
  std::vector<Policy> all;
  for (auto cost : {Policy::Cost::kOwn, Policy::Cost::kClosure, Policy::Cost::kNeighborhood}) {
    for (auto age : {Policy::Age::kStale, Policy::Age::kNextUse}) {
      for (auto demand :
           {Policy::Demand::kTogether, Policy::Demand::kOldestFirst, Policy::Demand::kNewestFirst}) {
        for (bool eager : {false, true}) {
          Policy policy;
          policy.cost = cost;
          policy.age = age;
          policy.demand = demand;
          policy.eager = eager;
          policy.noise = eager ? 0.5 : 0.0;
          all.push_back(policy);
        }
      }
    }
  }
  return all;
}

TEST(EvictionEngine, GivesValidPlansWithinItsOwnCountForEveryPolicy) {
  Random random(1);
  Limits limits;
  int overflowed = 0, complete = 0;
  for (int round = 0; round < 150; ++round) {
    testing::RandomShape shape;
    shape.max_ops = 20;
    shape.max_values = 30;
    shape.states = 0;  // which the engine does not count
    const Graph graph = testing::random_graph(random, shape);
    const auto peak = simulate(graph, keep_all_plan(graph)).peak.count();
    const Bytes budget(std::max<std::int64_t>(1, peak * random.between(30, 100) / 100));
    for (const Policy& policy : all_policies()) {
      const Outcome outcome = run(graph, budget, policy, 2000, limits);
      if (!outcome.complete) continue;
      ++complete;
      overflowed += outcome.overflow > Bytes();
      const auto violation = validate(graph, outcome.plan, OrderMode::kFixed, budget + outcome.overflow);
      ASSERT_FALSE(violation) << violation->message;
    }
  }
  EXPECT_GT(complete, 4000);
  EXPECT_GT(overflowed, 100);
  EXPECT_LT(overflowed, complete - 500);
}

TEST(EvictionEngine, KeepsTheOrderWhereEverythingFits) {
  const Graph graph = testing::training_chain(20);
  Limits limits;
  for (const Policy& policy : all_policies()) {
    EXPECT_EQ(run(graph, Bytes(1000), policy, 1000, limits).plan, keep_all_plan(graph));
  }
}

TEST(Evict, ReachesTheLeastPeakOfMostTinyGraphs) {
  Random random(2);
  Limits limits;
  int reached = 0;
  const int rounds = 150;
  for (int round = 0; round < rounds; ++round) {
    const Graph graph = testing::random_graph(random, {.over = 0, .states = 0});
    const Bytes least = testing::oracle_min_peak(graph, OrderMode::kFixed);
    reached += has_plan(testing::recorded_plan({&graph, least}, "evict", {}, limits));
  }
  EXPECT_GT(reached, rounds * 4 / 5);
}

TEST(Evict, ReturnsKeepAllWhereTheLimitsAllowNothing) {
  const Graph graph = testing::training_chain(60);
  Limits limits;
  limits.set_work(1);
  const auto result = testing::recorded_plan({&graph, Bytes(24)}, "evict", {}, limits);
  EXPECT_EQ(result.status, Status::kUnknown);
  EXPECT_EQ(result.plan, keep_all_plan(graph));
  EXPECT_EQ(result.stopped_by, StoppedBy::kWork);
}

}  // namespace
}  // namespace remat::evict
