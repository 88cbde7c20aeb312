// Every registered planner on every tiny graph, held against the brute-force oracle.
#include <gtest/gtest.h>

#include "helpers/graphs.h"
#include "helpers/oracle.h"
#include "remat/planner.h"

namespace remat {
namespace {

struct Case {
  Graph graph;
  Problem problem;
  Bytes least_peak;
  std::optional<Duration> least_duration;
};

/// Tiny random graphs of all kinds, each at four budgets from below the least peak to keep-all, in both
/// orders.
template <class Visit>
void each_case(int graphs, std::uint64_t seed, Visit&& visit) {
  Random random(seed);
  for (int round = 0; round < graphs; ++round) {
    const Graph graph = testing::random_graph(random);
    for (OrderMode order : {OrderMode::kFixed, OrderMode::kFree}) {
      const Bytes least = testing::oracle_min_peak(graph, order);
      const Bytes most = simulate(graph, keep_all_plan(graph)).peak;
      const Bytes middle(least.count() + (most.count() - least.count()) / 2);
      for (Bytes budget : {Bytes(std::max<std::int64_t>(1, least.count() - 1)), least, middle, most}) {
        const Problem problem{&graph, budget, order, Objective::kTime};
        visit(Case{graph, problem, least, testing::oracle_min_duration(graph, order, budget)});
      }
    }
  }
}

PlanResult run(const Problem& problem, std::string_view planner) {
  Limits limits;
  limits.set_work(20'000);
  return make_plan(problem, planner, {.seed = 7, .threads = 1, .set = {}}, limits);
}

class EveryPlanner : public ::testing::TestWithParam<std::string> {};

TEST_P(EveryPlanner, IsTruthfulOnEveryTinyGraph) {
  each_case(150, 11, [&](const Case& c) {
    Problem problem = c.problem;
    problem.graph = &c.graph;
    if (find_planner(GetParam()).supports(problem)) return;
    SCOPED_TRACE(::testing::Message()
                 << "budget " << problem.budget.count() << " " << to_string(problem.order));
    const PlanResult result = run(problem, GetParam());
    ASSERT_LE(result.peak_bound.peak, c.least_peak);
    if (c.least_duration) {
      ASSERT_LE(result.duration_bound.duration, *c.least_duration) << result.duration_bound.argument;
      ASSERT_NE(result.status, Status::kInfeasible);
    }
    if (has_plan(result)) {
      ASSERT_TRUE(result.plan);
      const auto violation = validate(c.graph, *result.plan, problem.order, problem.budget);
      ASSERT_FALSE(violation) << violation->message;
      ASSERT_TRUE(c.least_duration) << "a plan where the oracle finds none";
      ASSERT_GE(result.cost.duration, *c.least_duration);
      if (result.status == Status::kOptimal) {
        ASSERT_EQ(result.cost.duration, *c.least_duration);
      }
    }
  });
}

TEST_P(EveryPlanner, GivesTheSamePlanForTheSameSeed) {
  each_case(40, 12, [&](const Case& c) {
    Problem problem = c.problem;
    problem.graph = &c.graph;
    if (find_planner(GetParam()).supports(problem)) return;
    const PlanResult first = run(problem, GetParam());
    const PlanResult second = run(problem, GetParam());
    ASSERT_EQ(first.plan, second.plan);
    ASSERT_EQ(first.status, second.status);
    ASSERT_EQ(first.stopped_by, second.stopped_by);
  });
}

TEST_P(EveryPlanner, FindsTheKeepAllPlanWhereItFits) {
  const Graph graph = testing::training_chain(6);
  const Problem problem{&graph, simulate(graph, keep_all_plan(graph)).peak};
  if (find_planner(GetParam()).supports(problem))
    GTEST_SKIP() << "the planner does not take chains in fixed order";
  const PlanResult result = run(problem, GetParam());
  EXPECT_EQ(result.status, Status::kOptimal);
  EXPECT_EQ(result.cost.duration, graph.base_duration);
}

std::vector<std::string> names() {
  std::vector<std::string> result;
  for (const PlannerInfo& planner : planners()) result.emplace_back(planner.name);
  return result;
}

INSTANTIATE_TEST_SUITE_P(Registry, EveryPlanner, ::testing::ValuesIn(names()),
                         [](const auto& one) { return one.param; });

TEST(Auto, IsNeverWorseThanAnyPlannerItContains) {
  each_case(60, 13, [&](const Case& c) {
    Problem problem = c.problem;
    problem.graph = &c.graph;
    const PlanResult automatic = run(problem, "auto");
    for (const PlannerInfo& planner : planners()) {
      if (planner.supports(problem)) continue;
      const PlanResult one = run(problem, planner.name);
      // Of equally fast plans any will do: the objective is the duration.
      if (has_plan(one) && has_plan(automatic) && one.cost.duration == automatic.cost.duration) continue;
      ASSERT_FALSE(better(problem, one, automatic)) << planner.name << " beats auto";
    }
  });
}

}  // namespace
}  // namespace remat
