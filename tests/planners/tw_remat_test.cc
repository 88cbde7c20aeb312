#include "planners/tw_remat/tw_remat.h"

#include <gtest/gtest.h>

#include <cmath>

#include "helpers/graphs.h"
#include "helpers/reproduce.h"

namespace remat::tw_remat {
namespace {

constexpr OrderMode kOrders[] = {OrderMode::kFixed, OrderMode::kFree};

/// A residual network and its backward pass: blocks of `depth` ops with a skip around each, one gradient
/// per op that is kept to the end.
///   x_i -> o -> o -> o -> (+) -> x_i+1      forward; backward mirrors it and reads every forward value
///     \__________________/
Graph residual_training(int blocks, int depth) {
  std::vector<testing::TestOp> ops{{{}, {64}}};
  std::vector<std::vector<std::int64_t>> reads{{}};
  std::int64_t at = 0;
  for (int b = 0; b < blocks; ++b) {
    const std::int64_t skip = at;
    for (int d = 0; d < depth; ++d) {
      reads.push_back(d + 1 == depth ? std::vector{at, skip} : std::vector{at});
      if (reads.back().size() == 2 && at == skip) reads.back().pop_back();
      ops.push_back({reads.back(), {64}});
      ++at;
    }
  }
  const std::int64_t forward = at;
  std::vector<std::int64_t> kept;
  std::int64_t gradient = forward;
  std::int64_t next = forward + 1;
  for (std::int64_t u = forward; u > 0; --u) {
    std::vector<std::int64_t> inputs = reads[static_cast<std::size_t>(u)];
    inputs.push_back(gradient);
    ops.push_back({inputs, {1}});
    kept.push_back(next++);
    ops.push_back({inputs, {64}});
    gradient = next++;
  }
  return testing::make_graph({}, ops, kept);
}

Separators parts(const Graph& graph) {
  Limits limits;
  return separators(graph, {}, limits);
}

TEST(TwRemat, GivesAValidPlanForEveryKInBothOrders) {
  Random random(1);
  Limits limits;
  for (int round = 0; round < 250; ++round) {
    testing::RandomShape shape;
    shape.max_ops = 25;
    shape.max_values = 40;
    const Graph graph = testing::random_graph(random, shape);
    const Separators tree = parts(graph);
    for (OrderMode order : kOrders) {
      for (std::int64_t k = 1; k <= tree.bags + 1; ++k) {
        const auto plan = plan_for(graph, tree, k, order, 100'000, limits);
        ASSERT_TRUE(plan);
        const auto violation = validate(graph, *plan, order);
        ASSERT_FALSE(violation) << violation->message << " k " << k << " " << to_string(order);
      }
    }
  }
}

TEST(TwRemat, IsKeepAllWhereKExceedsTheBags) {
  const Graph graph = residual_training(8, 3);
  const Separators tree = parts(graph);
  Limits limits;
  EXPECT_EQ(plan_for(graph, tree, tree.bags + 1, OrderMode::kFixed, 100'000, limits), keep_all_plan(graph));
}

TEST(TwRemat, TakesLogarithmicMemoryOnChains) {
  // Theorem 5 with width 2: O((M_in + 2 M_max) log n); the constant here is far below the theorem's.
  Limits limits;
  for (int layers : {16, 64, 256, 1024}) {
    const Graph graph = testing::training_chain(layers);
    const Separators tree = parts(graph);
    EXPECT_LE(tree.width, 2);
    const auto plan = plan_for(graph, tree, 1, OrderMode::kFixed, 1 << 24, limits);
    ASSERT_TRUE(plan);
    const Simulation cost = simulate(graph, *plan);
    EXPECT_LE(static_cast<double>(cost.peak.count()), 3.0 * std::log2(2.0 * layers)) << layers << " layers";
    EXPECT_LE(static_cast<double>(cost.duration.count()),
              static_cast<double>(graph.base_duration.count()) * std::log2(2.0 * layers))
        << layers << " layers";
  }
}

TEST(TwRemat, DoesNotComputeAPartAgainForTheGradientsItKeeps) {
  Limits limits;
  const Graph graph = residual_training(40, 4);
  const Separators tree = parts(graph);
  for (OrderMode order : kOrders) {
    const auto plan = plan_for(graph, tree, 1, order, 1 << 24, limits);
    ASSERT_TRUE(plan);
    const double overhead_here = overhead(graph, simulate(graph, *plan).duration);
    EXPECT_LT(overhead_here, 10.0) << to_string(order);
  }
}

TEST(TwRemat, CandidatesFallInPeakAndRiseInDuration) {
  Limits limits;
  const Graph graph = residual_training(64, 3);
  for (OrderMode order : kOrders) {
    const auto candidates = candidate_plans({&graph, Bytes(1), order}, limits);
    ASSERT_GE(candidates.size(), 4u);
    EXPECT_EQ(candidates.front().cost.duration, graph.base_duration);
    for (std::size_t i = 0; i < candidates.size(); ++i) {
      EXPECT_FALSE(validate(graph, candidates[i].plan, order, candidates[i].cost.peak));
      if (i == 0) continue;
      EXPECT_LT(candidates[i].cost.peak, candidates[i - 1].cost.peak);
      EXPECT_GT(candidates[i].cost.duration, candidates[i - 1].cost.duration);
    }
    EXPECT_LT(4 * candidates.back().cost.peak.count(), candidates.front().cost.peak.count());
  }
}

TEST(TwRemat, GivesUpOnPlansThatGrowTooLong) {
  const Graph graph = testing::training_chain(200);
  Limits limits;
  EXPECT_FALSE(plan_for(graph, parts(graph), 1, OrderMode::kFixed, 500, limits));
}

TEST(TwRemat, SpendsNearLinearWorkOnALongTrainingGraph) {
  const Graph graph = residual_training(1475, 4);
  EXPECT_EQ(graph.num_ops(), 17701u);
  Limits limits;
  const Problem problem{&graph, Bytes(simulate(graph, keep_all_plan(graph)).peak.count() / 2)};
  const PlanResult result = testing::recorded_plan(problem, "tw_remat", {}, limits);
  EXPECT_TRUE(has_plan(result));
  EXPECT_LT(limits.work(), 20'000'000);
}

TEST(TwRemat, HonoursAForcedKAndItsLimits) {
  const Graph graph = testing::training_chain(100);
  Limits limits;
  const auto forced =
      testing::recorded_plan({&graph, Bytes(40)}, "tw_remat",
                             {.seed = 0, .threads = 1, .set = {{"k", "20"}, {"buy_back", "off"}}}, limits);
  EXPECT_EQ(forced.plan, plan_for(graph, parts(graph), 20, OrderMode::kFixed, 100'000, limits));

  Limits none;
  none.set_work(1);
  const auto stopped = testing::recorded_plan({&graph, Bytes(40)}, "tw_remat", {}, none);
  EXPECT_EQ(stopped.status, Status::kUnknown);
  EXPECT_EQ(stopped.stopped_by, StoppedBy::kWork);
  EXPECT_TRUE(stopped.plan);
}

TEST(TwRemat, MeetsThePeakObjectiveBelowAnyBudgetItMet) {
  const Graph graph = residual_training(32, 3);
  Limits limits;
  const auto least = testing::recorded_plan({&graph, kNoBudget, OrderMode::kFixed, Objective::kPeak},
                                            "tw_remat", {}, limits);
  EXPECT_EQ(least.status, Status::kFeasible);
  for (std::int64_t percent : {75, 50, 30}) {
    const Bytes budget(simulate(graph, keep_all_plan(graph)).peak.count() * percent / 100);
    const auto one = testing::recorded_plan({&graph, budget}, "tw_remat", {}, limits);
    EXPECT_TRUE(has_plan(one));
    EXPECT_LE(least.cost.peak, one.cost.peak);
  }
}

}  // namespace
}  // namespace remat::tw_remat
