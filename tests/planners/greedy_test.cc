#include <gtest/gtest.h>

#include "helpers/graphs.h"
#include "remat/planner.h"

namespace remat {
namespace {

PlanResult greedy(const Graph& graph, std::int64_t budget) {
  Limits limits;
  return make_plan({&graph, Bytes(budget)}, "greedy", {}, limits);
}

std::vector<int> ops(const Plan& plan) {
  std::vector<int> result;
  for (OpId op : plan.steps) result.push_back(op.index());
  return result;
}

TEST(Greedy, RecomputesTheOneOpOfTheExampleInThePaper) {
  // Kumar et al., figure 1:  A -> B -> C -> D -> E, and E reads A as well.
  const Graph graph =
      testing::make_graph({}, {{{}, {1}}, {{0}, {1}}, {{1}, {1}}, {{2, 1}, {1}}, {{3, 0}, {1}}}, {});
  EXPECT_EQ(ops(*greedy(graph, 4).plan), (std::vector<int>{0, 1, 2, 3, 4}));
  const PlanResult tight = greedy(graph, 3);
  EXPECT_EQ(ops(*tight.plan), (std::vector<int>{0, 1, 2, 3, 0, 4}));
  EXPECT_EQ(tight.status, Status::kOptimal);  // the cut bound proves that one op must run again
}

TEST(Greedy, DropsTheLargestFirstAndTheFasterOfTwo) {
  // Three sources of 2, 3 and 3 bytes, the last two of duration 5 and 4; a wide op; then all are read.
  const Graph graph = testing::make_graph(
      {}, {{{}, {2}, 1}, {{}, {3}, 5}, {{}, {3}, 4}, {{}, {4}, 1}, {{0, 1, 2}, {}, 1}}, {});
  EXPECT_EQ(ops(*greedy(graph, 11).plan), (std::vector<int>{0, 1, 2, 3, 2, 4}));
}

TEST(Greedy, LeavesOpsThatForbidRecomputation) {
  // The larger source may not run again, so the smaller one goes while the wide op runs.
  const Graph graph =
      testing::make_graph({}, {{{}, {5}, 1, 0, false}, {{}, {3}}, {{}, {4}}, {{0, 1}, {}}}, {});
  EXPECT_EQ(ops(*greedy(graph, 9).plan), (std::vector<int>{0, 1, 2, 1, 3}));
}

TEST(Greedy, ReachesHalfTheMemoryOfAChainAndNotFarBelow) {
  // Section 4.1: about 2x on deep networks, and still linear in the depth.
  const Graph graph = testing::training_chain(64);
  const auto keep_all = simulate(graph, keep_all_plan(graph)).peak.count();
  EXPECT_TRUE(has_plan(greedy(graph, keep_all * 3 / 5)));
  const PlanResult deep = greedy(graph, 8);
  EXPECT_EQ(deep.status, Status::kUnknown);
  EXPECT_FALSE(has_plan(deep));
  EXPECT_GT(deep.cost.peak.count(), 20);
}

TEST(Greedy, StopsWhenItsLimitIsReachedAndStillReturnsAValidPlan) {
  const Graph graph = testing::training_chain(500);
  Limits limits;
  limits.set_work(50);
  const PlanResult result = make_plan({&graph, Bytes(100)}, "greedy", {}, limits);
  EXPECT_EQ(result.stopped_by, StoppedBy::kWork);
  EXPECT_TRUE(result.plan);
}

}  // namespace
}  // namespace remat
