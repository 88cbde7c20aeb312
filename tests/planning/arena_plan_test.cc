// Plans whose arena is within the budget, against brute force over live bytes and an independent check.
#include <gtest/gtest.h>

#include "helpers/errors.h"
#include "helpers/graphs.h"
#include "helpers/oracle.h"
#include "layout/random_buffers.h"
#include "remat/arena.h"
#include "remat/error.h"
#include "remat/generate.h"
#include "remat/keep_all.h"

namespace remat {
namespace {

void expect_true_layout(const Problem& problem, const ArenaPlan& plan) {
  ASSERT_TRUE(plan.result.plan);
  EXPECT_FALSE(validate(*problem.graph, *plan.result.plan, problem.order, problem.budget));
  EXPECT_EQ(plan.result.cost, simulate(*problem.graph, *plan.result.plan));
  EXPECT_LE(plan.arena(), problem.budget);
  EXPECT_GE(plan.arena(), plan.result.cost.peak);
  EXPECT_EQ(testing::fault_of(plan.buffers.problem, plan.layout.offsets.raw(), plan.layout.arena), "");
}

/// Sizes rounded up, as an arena holds them.
Graph rounded_up(Graph graph, std::int64_t alignment) {
  const auto round = [&](Bytes size) {
    return Bytes((size.count() + alignment - 1) / alignment * alignment);
  };
  for (ValueId value : graph.values()) {
    if (!graph.is_graph_input(value)) graph.bytes[value] = round(graph.bytes[value]);
  }
  for (OpId op : graph.ops()) graph.workspace[op] = round(graph.workspace[op]);
  return graph;
}

TEST(ArenaPlan, IsTheFastestWhereItSaysSoAndImpossibleOnlyWhereLiveBytesAre) {
  Random random(40);
  int found = 0, infeasible = 0;
  for (int round = 0; round < 120; ++round) {
    const Graph graph = testing::random_graph(random);
    const std::int64_t alignment = round % 2 == 0 ? 1 : 4;
    const Graph rounded = rounded_up(graph, alignment);
    const Bytes least = testing::oracle_min_peak(rounded, OrderMode::kFixed);
    for (std::int64_t more : {-1, 0, 3}) {
      const Problem problem{&graph, least + Bytes(more)};
      if (problem.budget <= Bytes()) continue;
      Limits limits;
      limits.set_work(100'000);
      const ArenaPlan plan = make_arena_plan(problem, "auto", {}, alignment, limits);
      const auto fastest = testing::oracle_min_duration(rounded, OrderMode::kFixed, problem.budget);
      if (has_plan(plan.result)) {
        ++found;
        expect_true_layout(problem, plan);
        ASSERT_TRUE(fastest);
        EXPECT_GE(plan.result.cost.duration, *fastest);
        EXPECT_LE(plan.result.duration_bound.duration, *fastest);
        if (plan.result.status == Status::kOptimal) {
          EXPECT_EQ(plan.result.cost.duration, *fastest);
        }
      } else if (plan.result.status == Status::kInfeasible) {
        ++infeasible;
        EXPECT_LT(problem.budget, least);
      }
    }
  }
  EXPECT_GT(found, 150);
  EXPECT_GT(infeasible, 50);
}

/// On these random graphs the budgets are so tight that layouts lose some percent.
TEST(ArenaPlan, TakesFewerLiveBytesWhereTheLayoutLoses) {
  RandomLayeredOptions shape;
  shape.ops = 200;
  const Graph graph = random_layered(shape);
  const Bytes keep_all = keep_all_peak(graph);
  const Problem problem{&graph, Bytes(keep_all.count() * 9 / 10)};
  Limits limits;
  limits.set_work(2'000'000);
  const ArenaPlan plan = make_arena_plan(problem, "auto", {}, 1, limits);
  ASSERT_TRUE(has_plan(plan.result));
  expect_true_layout(problem, plan);
}

TEST(ArenaPlan, SaysThatNothingWasFoundWithinTheLimits) {
  const Graph graph = testing::training_chain(12);
  const Problem problem{&graph, Bytes(12)};
  Limits limits;
  const ArenaPlan plan = make_arena_plan(problem, "keep_all", {}, 1, limits);
  EXPECT_EQ(plan.result.status, Status::kUnknown);
  EXPECT_EQ(plan.arena(), Bytes(13));
}

TEST(ArenaPlan, RefusesWhatItCannotDo) {
  const Graph graph = testing::training_chain(3);
  Limits limits;
  Problem problem{&graph, Bytes(10)};
  EXPECT_EQ(testing::usage_error([&] { make_arena_plan(problem, "auto", {}, 0, limits); }),
            "alignment 0 is outside [1, 2^62)");
  problem.objective = Objective::kPeak;
  EXPECT_EQ(testing::usage_error([&] { make_arena_plan(problem, "auto", {}, 1, limits); }),
            "budget_on='arena' goes with objective='time' only");
}

}  // namespace
}  // namespace remat
