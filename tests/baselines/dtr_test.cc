#include <gtest/gtest.h>

#include <cmath>

#include "helpers/graphs.h"
#include "remat/planner.h"

namespace remat {
namespace {

PlanResult dtr(const Graph& graph, std::int64_t budget, const std::string& heuristic) {
  Limits limits;
  return make_plan({&graph, Bytes(budget)}, "dtr",
                   {.seed = 0, .threads = 1, .set = {{"heuristic", heuristic}}}, limits);
}

TEST(Dtr, TakesLinearTimeOnChainsWithMemoryOfTheSquareRoot) {
  // Theorem 3.1 of the paper, with e* in place of the reduced heuristic it analyses.
  for (int layers : {64, 256, 1024}) {
    const Graph graph = testing::training_chain(layers);
    const auto budget = static_cast<std::int64_t>(2 * std::sqrt(layers)) + 4;
    const PlanResult result = dtr(graph, budget, "dtr");
    ASSERT_TRUE(has_plan(result)) << layers;
    EXPECT_LT(overhead(graph, result.cost.duration), 1.5) << layers;
  }
}

TEST(Dtr, EvictsTheLeastRecentlyUsedOrTheLargestAsToldTo) {
  // Sources of 2, 5 and 3 bytes, a wide op of 4 that needs one of them gone, then all sources are read.
  const Graph graph =
      testing::make_graph({}, {{{}, {2}}, {{}, {5}}, {{}, {3}}, {{}, {4}}, {{0, 1, 2}, {}}}, {});
  const auto step = [](const PlanResult& r) { return r.plan->steps[StepId(4)].index(); };
  const PlanResult lru = dtr(graph, 12, "lru"), size = dtr(graph, 12, "size");
  ASSERT_TRUE(has_plan(lru) && has_plan(size));
  EXPECT_EQ(step(lru), 0);
  EXPECT_EQ(step(size), 1);
}

TEST(Dtr, RefusesAnUnknownHeuristic) {
  const Graph graph = testing::training_chain(4);
  EXPECT_ANY_THROW(dtr(graph, 5, "clairvoyant"));
}

}  // namespace
}  // namespace remat
