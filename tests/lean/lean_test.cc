// The library built with REMAT_HIGHS=OFF and REMAT_CPSAT=OFF: the objects of the usual build except the two
// files that differ.
#include <gtest/gtest.h>

#include "helpers/errors.h"
#include "helpers/graphs.h"
#include "remat/executor.h"
#include "remat/hiremate.h"
#include "remat/keep_all.h"
#include "remat/planner.h"
#include "remat/selection.h"

namespace remat {
namespace {

using testing::usage_error;

constexpr std::int64_t kWork = 500'000;
const std::string kNoHighs = "this build of Remat is without HiGHS (-DREMAT_HIGHS=OFF)";
const std::string kNoCpSat = "this build of Remat is without CP-SAT (-DREMAT_CPSAT=OFF)";

Problem tight_problem(const Graph& graph) {
  return {.graph = &graph, .budget = Bytes(keep_all_peak(graph).count() * 6 / 10)};
}

PlanResult plan_of(const Problem& problem, std::string_view planner, const PlanOptions& options = {}) {
  Limits limits;
  limits.set_work(kWork);
  return make_plan(problem, planner, options, limits);
}

TEST(WithoutSolvers, WhatNeedsThemIsRefusedWithTheReason) {
  const Graph graph = testing::training_chain(6);
  const Problem problem = tight_problem(graph);
  for (const auto& [planner, reason] :
       {std::pair("checkmate_lp", kNoHighs), {"checkmate_milp", kNoHighs}, {"moccasin", kNoCpSat}}) {
    EXPECT_EQ(usage_error([&] { plan_of(problem, planner); }),
              "planner " + std::string(planner) + " does not support this problem: " + reason);
  }
  EXPECT_EQ(usage_error([&] { plan_of(problem, "hiremate", {.set = {{"top", "h_ilp"}}}); }),
            "h_ilp needs HiGHS, and " + kNoHighs);
  Limits limits;
  const SplitProblem split{.room = {Bytes(1)}, .parts = {{{Duration(1), {Bytes(1)}}}}};
  EXPECT_EQ(usage_error([&] { split_within(split, limits); }), "split_within needs HiGHS, and " + kNoHighs);
}

TEST(WithoutSolvers, AllOtherPlannersPlan) {
  const Graph graph = testing::training_chain(6);
  const Problem problem = tight_problem(graph);
  int planned = 0;
  for (const PlannerInfo& planner : planners()) {
    if (planner.supports(problem)) continue;
    const PlanResult result = plan_of(problem, planner.name);
    ASSERT_TRUE(result.plan) << planner.name;
    EXPECT_FALSE(validate(graph, *result.plan, problem.order)) << planner.name;
    ++planned;
  }
  EXPECT_GE(planned, 10);
  for (const char* name : {"auto", "retention", "lns", "search", "rotor"}) {
    EXPECT_TRUE(has_plan(plan_of(problem, name))) << name;
  }
}

TEST(WithoutSolvers, AutoEndsAndKeepsTheBoundsThatNeedNoProgram) {
  Random random(7);
  for (int i = 0; i < 5; ++i) {
    const Graph graph = testing::random_graph(random, {.min_ops = 6});
    for (const int percent : {70, 85}) {
      const Bytes budget(keep_all_peak(graph).count() * percent / 100);
      const PlanResult result = plan_of({.graph = &graph, .budget = budget}, "auto");
      EXPECT_NE(result.duration_bound.argument, "stage_lp");
      EXPECT_NE(result.duration_bound.argument, "stage_milp");
      if (!has_plan(result)) continue;
      Limits limits;
      limits.set_work(kWork);
      const Proof proof = prove_optimal(graph, budget, OrderMode::kFixed, *result.plan, limits);
      EXPECT_FALSE(proof.plan);
      EXPECT_EQ(proof.optimal, proof.bound.duration == result.cost.duration);
    }
  }
}

TEST(WithoutSolvers, SetsAreSearchedAndNotProved) {
  Limits limits;
  limits.set_work(kWork);
  const SelectionProblem problem{.room = {Bytes(10)},
                                 .items = {{.gain = Duration(6), .lives = {{0, 1, Bytes(6)}}},
                                           {.gain = Duration(5), .lives = {{0, 1, Bytes(5)}}},
                                           {.gain = Duration(5), .lives = {{0, 1, Bytes(5)}}}}};
  const Selection selection = select_within(problem, limits);
  EXPECT_GE(selection.gain, Duration(6));
  EXPECT_GE(selection.bound, Duration(10));

  const Graph graph = testing::training_step("gpt", {.depth = 2});
  const Problem tight{.graph = &graph, .budget = Bytes(keep_all_peak(graph).count() * 9 / 10)};
  Limits of_executor;
  of_executor.set_work(kWork);
  const ExecutorPlan executor = make_executor_plan(tight, Executor::kPartitioner, {}, of_executor);
  ASSERT_TRUE(has_plan(executor.result));
  EXPECT_FALSE(validate(graph, *executor.result.plan, OrderMode::kFixed, tight.budget));
}

}  // namespace
}  // namespace remat
