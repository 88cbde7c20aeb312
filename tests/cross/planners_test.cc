// Every registered planner on every tiny graph, compared with the brute-force oracle.
#include <gtest/gtest.h>

#include "helpers/graphs.h"
#include "helpers/long.h"
#include "helpers/oracle.h"
#include "helpers/reproduce.h"
#include "remat/planner.h"

namespace remat {
namespace {

/// The problem points at the graph.
struct Case {
  const Graph& graph;
  Problem problem;
  Bytes least_peak;
  std::optional<Duration> least_duration;
};

/// Tiny random graphs, each at four budgets from below the least peak to keep-all, in both orders.
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

/// The same graphs, each asked for the least peak; `least_duration` is the least at that peak.
template <class Visit>
void each_peak_case(int graphs, std::uint64_t seed, Visit&& visit) {
  Random random(seed);
  for (int round = 0; round < graphs; ++round) {
    const Graph graph = testing::random_graph(random);
    for (OrderMode order : {OrderMode::kFixed, OrderMode::kFree}) {
      const Bytes least = testing::oracle_min_peak(graph, order);
      const Problem problem{&graph, kNoBudget, order, Objective::kPeak};
      visit(Case{graph, problem, least, testing::oracle_min_duration(graph, order, least)});
    }
  }
}

PlanResult run(const Problem& problem, std::string_view planner, int threads = 1) {
  Limits limits;
  limits.set_work(20'000);
  return testing::recorded_plan(problem, planner, {.seed = 7, .threads = threads, .set = {}}, limits);
}

/// Checks every answer: the plan is valid and as claimed, no plan is below the bounds, the proofs are true.
void expect_truth(const Case& c, const PlanResult& result) {
  const Problem& problem = c.problem;
  ASSERT_LE(result.peak_bound.peak, c.least_peak);
  if (c.least_duration) {
    ASSERT_LE(result.duration_bound.duration, *c.least_duration) << result.duration_bound.argument;
    ASSERT_NE(result.status, Status::kInfeasible);
  }
  if (!has_plan(result)) return;
  ASSERT_TRUE(result.plan);
  const bool by_peak = problem.objective == Objective::kPeak;
  const auto violation =
      validate(c.graph, *result.plan, problem.order, by_peak ? std::nullopt : std::optional(problem.budget));
  ASSERT_FALSE(violation) << violation->message;
  ASSERT_TRUE(c.least_duration) << "a plan where the oracle finds none";
  ASSERT_GE(result.cost.peak, c.least_peak);
  if (!by_peak || result.cost.peak == c.least_peak) {
    ASSERT_GE(result.cost.duration, *c.least_duration);
  }
  if (result.status != Status::kOptimal) return;
  ASSERT_EQ(result.cost.duration, *c.least_duration);
  if (by_peak) {
    ASSERT_EQ(result.cost.peak, c.least_peak);
  }
}

class EveryPlanner : public ::testing::TestWithParam<std::string> {
 protected:
  bool supports(const Problem& problem) const { return !find_planner(GetParam()).supports(problem); }
};

TEST_P(EveryPlanner, IsTruthfulOnEveryTinyGraph) {
  each_case(150, 11, [&](const Case& c) {
    if (!supports(c.problem) || HasFatalFailure()) return;
    expect_truth(c, run(c.problem, GetParam()));
  });
}

TEST_P(EveryPlanner, IsTruthfulWithFourThreads) {
  each_case(25, 14, [&](const Case& c) {
    if (!supports(c.problem) || HasFatalFailure()) return;
    expect_truth(c, run(c.problem, GetParam(), 4));
  });
}

TEST_P(EveryPlanner, IsTruthfulAboutTheLeastPeak) {
  each_peak_case(100, 15, [&](const Case& c) {
    if (!supports(c.problem) || HasFatalFailure()) return;
    const PlanResult result = run(c.problem, GetParam());
    expect_truth(c, result);
    ASSERT_TRUE(has_plan(result)) << "some plan always fits, keep-all for one";
    ASSERT_LE(result.cost.peak, simulate(c.graph, keep_all_plan(c.graph)).peak);
  });
}

TEST_P(EveryPlanner, GivesTheSamePlanForTheSameSeed) {
  const auto expect_same = [&](const Case& c) {
    if (!supports(c.problem) || HasFatalFailure()) return;
    const PlanResult first = run(c.problem, GetParam());
    const PlanResult second = run(c.problem, GetParam());
    ASSERT_EQ(first.plan, second.plan);
    ASSERT_EQ(first.status, second.status);
    ASSERT_EQ(first.stopped_by, second.stopped_by);
  };
  each_case(40, 12, expect_same);
  each_peak_case(20, 12, expect_same);
}

TEST_P(EveryPlanner, FindsTheKeepAllPlanWhereItFits) {
  const Graph graph = testing::training_chain(6);
  const Problem problem{&graph, simulate(graph, keep_all_plan(graph)).peak};
  if (const auto reason = find_planner(GetParam()).supports(problem)) GTEST_SKIP() << *reason;
  const PlanResult result = run(problem, GetParam());
  EXPECT_EQ(result.status, Status::kOptimal);
  EXPECT_EQ(result.cost.duration, graph.base_duration);
}

TEST_P(EveryPlanner, TakesABudgetWithTheLeastPeakToo) {
  each_case(testing::draws(12, 40), 14, [&](const Case& c) {
    Problem problem = c.problem;
    problem.graph = &c.graph;
    problem.objective = Objective::kPeak;
    if (find_planner(GetParam()).supports(problem)) return;
    const Bytes bound = best_peak_bound(c.graph, problem.order).peak;
    problem.budget = bound - Bytes(1);
    const PlanResult below = run(problem, GetParam());
    ASSERT_EQ(below.status, Status::kInfeasible);
    ASSERT_EQ(below.stopped_by, StoppedBy::kProof);
    ASSERT_FALSE(below.plan);
    problem.budget = c.problem.budget;
    const PlanResult within = run(problem, GetParam());
    ASSERT_EQ(has_plan(within), within.plan && within.cost.peak <= problem.budget);
    problem.budget = kNoBudget;
    ASSERT_TRUE(has_plan(run(problem, GetParam())));
  });
}

std::vector<std::string> names() {
  std::vector<std::string> result;
  for (const PlannerInfo& planner : planners()) result.emplace_back(planner.name);
  return result;
}

INSTANTIATE_TEST_SUITE_P(Registry, EveryPlanner, ::testing::ValuesIn(names()),
                         [](const auto& one) { return one.param; });

TEST(Auto, IsNeverWorseThanAnyPlannerItContains) {
  each_case(testing::draws(25, 60), 13, [&](const Case& c) {
    const PlanResult automatic = run(c.problem, "auto");
    for (const PlannerInfo& planner : planners()) {
      if (planner.supports(c.problem)) continue;
      const PlanResult one = run(c.problem, planner.name);
      // Of equally fast plans any will do: the objective is the duration.
      if (has_plan(one) && has_plan(automatic) && one.cost.duration == automatic.cost.duration) continue;
      ASSERT_FALSE(better(c.problem, one, automatic)) << planner.name << " beats auto";
    }
  });
}

}  // namespace
}  // namespace remat
