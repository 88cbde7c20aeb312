// The checks of `plan` on every planner's answer, tested with planners that give false ones.
#include <gtest/gtest.h>

#include <stdexcept>

#include "helpers/graphs.h"
#include "helpers/oracle.h"
#include "remat/generate.h"
#include "remat/io.h"
#include "remat/keep_all.h"
#include "remat/planner.h"

namespace remat {
namespace {

// a(6) -> b(4) -> c(6) -> d(4) -> e(1); e reads a as well. Keeping all peaks at 16; with a run again before e
// the peak is 11, the least there is, and the duration 6 in place of 5.
Graph skip_graph() {
  return testing::make_graph({}, {{{}, {6}}, {{0}, {4}}, {{1}, {6}}, {{2}, {4}}, {{0, 3}, {1}}}, {});
}

const Plan kKeepAll = testing::plan_of({0, 1, 2, 3, 4});
const Plan kAgain = testing::plan_of({0, 1, 2, 3, 0, 4});

PlanResult answer(const Problem& problem, const PlanResult& said) {
  Limits limits;
  return make_plan_with(problem, "liar", [&](const Problem&, Limits&) { return said; }, limits);
}

PlanResult plan_only(const Plan& plan) {
  PlanResult result;
  result.plan = plan;
  return result;
}

/// The error of the entry point for a planner with this answer; empty if it is accepted.
std::string caught(const Problem& problem, const PlanResult& said) {
  try {
    answer(problem, said);
  } catch (const std::logic_error& error) {
    return error.what();
  }
  return "";
}

void expect_caught(const Problem& problem, const PlanResult& said, const std::string& words) {
  const std::string message = caught(problem, said);
  EXPECT_NE(message.find("planner liar"), std::string::npos) << message;
  EXPECT_NE(message.find(words), std::string::npos) << message;
}

TEST(Gate, LetsATruePlanPassAndCountsItsCostItself) {
  const Graph graph = skip_graph();
  PlanResult said = plan_only(kAgain);
  said.cost = {.peak = Bytes(1), .peak_step = StepId(0), .duration = Duration(1), .traffic = {}};
  const PlanResult result = answer({&graph, Bytes(11)}, said);
  EXPECT_EQ(result.planner, "liar");
  EXPECT_EQ(result.cost.peak, Bytes(11));
  EXPECT_EQ(result.cost.duration, Duration(6));
  EXPECT_TRUE(has_plan(result));
}

TEST(Gate, CatchesPlansThatAreNotValid) {
  const Graph graph = skip_graph();
  const Problem problem{&graph};
  expect_caught(problem, plan_only(Plan()), "returned a plan that breaks");
  expect_caught(problem, plan_only(testing::plan_of({0, 1, 2, 3})), "breaks");
  expect_caught(problem, plan_only(testing::plan_of({1, 0, 2, 3, 4})), "breaks");
  expect_caught(problem, plan_only(testing::plan_of({0, 1, 2, 3, 4, 5})), "breaks");
}

TEST(Gate, HoldsPlansToTheOrderThatWasAskedFor) {
  // Two independent ops, then one that reads both.
  const Graph graph = testing::make_graph({}, {{{}, {1}}, {{}, {1}}, {{0, 1}, {1}}}, {});
  const PlanResult said = plan_only(testing::plan_of({1, 0, 2}));
  EXPECT_EQ(caught({.graph = &graph, .order = OrderMode::kFree}, said), "");
  expect_caught({.graph = &graph, .order = OrderMode::kFixed}, said, "breaks");
}

TEST(Gate, CatchesOpsThatMustNotRunTwice) {
  const Graph graph = testing::make_graph(
      {}, {{.inputs = {}, .output_bytes = {6}, .recomputable = false}, {{0}, {4}}, {{0, 1}, {1}}}, {});
  expect_caught({&graph}, plan_only(testing::plan_of({0, 1, 0, 2})), "breaks");
}

TEST(Gate, CatchesBoundsThatThePlanItselfRefutes) {
  const Graph graph = skip_graph();
  PlanResult said = plan_only(kAgain);
  said.peak_bound = {"dream", Bytes(12), OpId()};
  expect_caught({&graph, Bytes(16)}, said, "has the peak 11, below the bound dream of 12");
  said = plan_only(kAgain);
  said.duration_bound = {"dream", Duration(7)};
  expect_caught({&graph, Bytes(11)}, said, "takes 6, below the bound dream of 7");
  // A bound holds for plans within the budget only.
  EXPECT_EQ(caught({&graph, Bytes(11)},
                   [&] {
                     PlanResult over = plan_only(kKeepAll);
                     over.duration_bound = {"dream", Duration(7)};
                     return over;
                   }()),
            "");
}

TEST(Gate, CatchesBudgetsThatAreCalledInfeasibleAndAreNot) {
  const Graph graph = skip_graph();
  PlanResult said = plan_only(kAgain);
  said.status = Status::kInfeasible;
  expect_caught({&graph, Bytes(11)}, said, "within the budget of 11 that was called infeasible");
  // Contradicted by a plan that is already known.
  said.plan.reset();
  const std::vector<Plan> starts{kAgain};
  expect_caught({.graph = &graph, .budget = Bytes(11), .starts = starts}, said, "called infeasible");
  EXPECT_EQ(caught({&graph, Bytes(11)}, said), "") << "nobody knows better";
}

TEST(Gate, CatchesAnswersWithoutAPlan) {
  const Graph graph = skip_graph();
  for (Status status : {Status::kOptimal, Status::kFeasible}) {
    PlanResult said;
    said.status = status;
    expect_caught({&graph, Bytes(11)}, said, "without a plan");
  }
}

TEST(Gate, CatchesStartsThatAreNotValid) {
  const Graph graph = skip_graph();
  const std::vector<Plan> starts{kAgain, testing::plan_of({0, 1})};
  expect_caught({.graph = &graph, .starts = starts}, plan_only(kKeepAll), "was given a start that breaks");
}

TEST(Gate, SettlesTheStatusByWhatThePlanIs) {
  const Graph graph = skip_graph();
  PlanResult said = plan_only(kKeepAll);
  said.status = Status::kOptimal;
  EXPECT_EQ(answer({&graph, Bytes(11)}, said).status, Status::kUnknown) << "over the budget";
  said.status = Status::kFeasible;
  EXPECT_EQ(answer({&graph, Bytes(11)}, said).status, Status::kUnknown);
  const PlanResult proved = answer({&graph, Bytes(16)}, plan_only(kKeepAll));
  EXPECT_EQ(proved.status, Status::kOptimal) << "no plan is faster than every op once";
  EXPECT_EQ(proved.stopped_by, StoppedBy::kProof);
}

TEST(Gate, DoesNotAskThePlannerWhereABoundIsAboveTheBudget) {
  const Graph graph = skip_graph();
  for (Objective objective : {Objective::kTime, Objective::kPeak}) {
    Limits limits;
    bool asked = false;
    const PlanResult result = make_plan_with(
        {.graph = &graph, .budget = Bytes(10), .objective = objective}, "any",
        [&](const Problem&, Limits&) {
          asked = true;
          return PlanResult();
        },
        limits);
    EXPECT_FALSE(asked);
    EXPECT_EQ(result.status, Status::kInfeasible);
    EXPECT_EQ(result.stopped_by, StoppedBy::kProof);
  }
}

TEST(Gate, TakesAPlanKnownBeforeThatIsBetterAndSaysSo) {
  const Graph graph = skip_graph();
  const std::vector<Plan> starts{kAgain};
  const Problem problem{.graph = &graph, .budget = Bytes(11), .starts = starts};
  const PlanResult result = answer(problem, plan_only(kKeepAll));
  EXPECT_EQ(result.plan, kAgain);
  EXPECT_TRUE(result.known);
  EXPECT_EQ(result.planner, "known");
  EXPECT_TRUE(has_plan(result));
  // An equally good known plan does not replace the planner's own.
  const PlanResult own = answer(problem, plan_only(kAgain));
  EXPECT_FALSE(own.known);
  EXPECT_EQ(own.planner, "liar");
}

TEST(Gate, SaysWhichLimitWasReachedWhereThePlannerDoesNot) {
  const Graph graph = skip_graph();
  Limits limits;
  limits.set_work(10);
  const auto run = [&](const Problem&, Limits& inner) {
    inner.spend(11);
    return plan_only(kKeepAll);
  };
  EXPECT_EQ(make_plan_with({&graph, Bytes(11)}, "slow", run, limits).stopped_by, StoppedBy::kWork);
}

// Limited by work, so that the result does not depend on a clock.
PlanResult near_enough(const Problem& problem, std::string_view planner, std::optional<double> share,
                       std::int64_t& work) {
  Limits limits;
  limits.set_work(3'000'000);
  if (share) limits.set_gap(*share);
  PlanResult result = make_plan(problem, planner, {}, limits);
  work = limits.work();
  return result;
}

TEST(Gap, EndsPlannersAsSoonAsAPlanIsProvedSoNear) {
  RandomLayeredOptions shape;
  shape.ops = 300;
  const Graph graph = random_layered(shape);
  Problem problem{&graph, Bytes(keep_all_peak(graph).count() * 8 / 10)};
  for (std::string_view planner : {"auto", "search"}) {
    std::int64_t work = 0, work_with_gap = 0;
    const PlanResult all = near_enough(problem, planner, std::nullopt, work);
    ASSERT_TRUE(has_plan(all)) << planner;
    EXPECT_NE(all.stopped_by, StoppedBy::kGap) << planner;
    ASSERT_GT(gap(all), 0) << planner;
    const double share = 4 * gap(all) + 0.01;
    const PlanResult near = near_enough(problem, planner, share, work_with_gap);
    EXPECT_EQ(near.stopped_by, StoppedBy::kGap) << planner;
    EXPECT_LE(gap(near), share) << planner;
    EXPECT_LT(work_with_gap, work / 2) << planner;
  }
}

TEST(Gap, OfNothingChangesNothingButWhenItEnds) {
  const Graph graph = skip_graph();
  std::int64_t work = 0;
  const PlanResult result = near_enough({&graph, Bytes(11)}, "auto", 0.0, work);
  EXPECT_EQ(result.status, Status::kOptimal);
  EXPECT_EQ(result.cost.duration, Duration(6));
  EXPECT_EQ(near_enough({&graph, Bytes(5)}, "auto", 1.0, work).status, Status::kInfeasible);
  Problem least{&graph};
  least.objective = Objective::kPeak;
  EXPECT_EQ(near_enough(least, "auto", 1.0, work).cost.peak, Bytes(11));
}

TEST(PeakObjective, IsHeldToABudgetWhereThereIsOne) {
  const Graph graph = skip_graph();
  const Problem free{.graph = &graph, .objective = Objective::kPeak};
  EXPECT_EQ(answer(free, plan_only(kKeepAll)).status, Status::kFeasible);
  Problem bounded = free;
  bounded.budget = Bytes(12);
  EXPECT_EQ(answer(bounded, plan_only(kAgain)).status, Status::kFeasible);
  EXPECT_EQ(answer(bounded, plan_only(kKeepAll)).status, Status::kUnknown);
  PlanResult least = plan_only(kKeepAll);
  least.status = Status::kOptimal;  // "no plan has a smaller peak": then none is within 12 bytes
  EXPECT_EQ(answer(bounded, least).status, Status::kInfeasible);
}

TEST(PeakObjective, OfEveryPlannerAnswersWithinABudgetOrSaysThatItDoesNot) {
  Random random(31);
  for (int round = 0; round < 40; ++round) {
    const Graph graph = testing::random_graph(random);
    for (OrderMode order : {OrderMode::kFixed, OrderMode::kFree}) {
      const Bytes least = testing::oracle_min_peak(graph, order);
      for (Bytes budget : {least - Bytes(1), least, kNoBudget}) {
        if (budget.count() < 1) continue;
        const Problem problem{
            .graph = &graph, .budget = budget, .order = order, .objective = Objective::kPeak};
        for (const PlannerInfo& planner : planners()) {
          if (planner.supports(problem)) continue;
          Limits limits;
          limits.set_work(5'000);
          const PlanResult result =
              make_plan(problem, planner.name, {.seed = 3, .threads = 1, .set = {}}, limits);
          SCOPED_TRACE(::testing::Message()
                       << planner.name << " " << to_string(order) << " budget " << budget.count() << "\n"
                       << format_graph(graph));
          EXPECT_EQ(has_plan(result), result.plan && result.cost.peak <= budget);
          EXPECT_EQ(result.status == Status::kInfeasible && budget >= least, false);
        }
      }
    }
  }
}

}  // namespace
}  // namespace remat
