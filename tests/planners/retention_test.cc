// Plans made for the moment of the keep-all peak where several moments bind.
#include "planners/retention/retention.h"

#include <gtest/gtest.h>

#include "helpers/graphs.h"
#include "planners/retention/segments.h"
#include "remat/keep_all.h"

namespace remat {
namespace {

Graph gpt(std::int64_t depth) { return testing::training_step("gpt", {.depth = depth}); }

/// Residuals are cheap to add up again, all the way from the first layer: without cuts they all come back for
/// the first op of the backward pass, and the gap is 2 % at 30 % of the memory.
TEST(RetentionPlanner, OfADeepModelIsNearTheBoundAtAnyBudget) {
  const Graph graph = gpt(192);
  for (int percent : {70, 50, 40, 30, 25}) {
    const Bytes budget(keep_all_peak(graph).count() / 100 * percent);
    Limits limits;
    const PlanResult found = make_plan({&graph, budget}, "retention", {}, limits);
    ASSERT_TRUE(has_plan(found)) << percent;
    EXPECT_LE(found.cost.peak, budget);
    EXPECT_LT(gap(found), 0.001) << percent;
  }
}

TEST(RetentionPlanner, CutsAChainOfRerunsWhereLittleIsKeptForIt) {
  const Graph graph = gpt(96);
  const Bytes budget(keep_all_peak(graph).count() / 100 * 30);
  Limits limits;
  const auto [first, least, fits, above] = retention::segmented_plans(graph, budget, limits);
  ASSERT_TRUE(first && least && fits);
  const Simulation before = simulate(graph, *first), after = simulate(graph, *least);
  EXPECT_GT(before.peak, budget);
  EXPECT_LE(after.peak, budget);
  // Keeping what is held longest would cost two hundredths of the step.
  EXPECT_LT((after.duration - before.duration).count(), graph.base_duration.count() / 500);
  EXPECT_GE(above, Duration());
}

/// Of four times as many layers.
TEST(RetentionPlanner, TakesWorkInProportionToTheGraph) {
  const auto work_per_op = [](const Graph& graph) {
    Limits limits;
    make_plan({&graph, Bytes(keep_all_peak(graph).count() / 100 * 30)}, "retention", {}, limits);
    return static_cast<double>(limits.work()) / static_cast<double>(graph.ops().size());
  };
  EXPECT_LT(work_per_op(gpt(384)), 2 * work_per_op(gpt(96)));
}

TEST(RetentionPlanner, OfRandomGraphsEndsWithTheLeastPeakOnTheWay) {
  Random random(24);
  int over = 0;
  for (int round = 0; round < 300; ++round) {
    const Graph graph = testing::random_graph(random);
    const Bytes keep_all = keep_all_peak(graph), budget(keep_all.count() * 3 / 4);
    Limits limits;
    Bytes least = keep_all;
    for (const Plan& plan : retention::candidate_plans(graph, budget, limits)) {
      ASSERT_FALSE(validate(graph, plan, OrderMode::kFixed));
      least = std::min(least, simulate(graph, plan).peak);
    }
    over += least < keep_all;
  }
  EXPECT_GT(over, 30);
}

}  // namespace
}  // namespace remat
