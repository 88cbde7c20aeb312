#include "exact/stage_model.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "exact/stage_solve.h"
#include "helpers/graphs.h"
#include "helpers/oracle.h"
#include "lp/highs.h"

namespace remat {
namespace {

lp::Solution solve(const StageModel& model, bool relax) {
  Limits limits;
  lp::Settings settings;
  settings.relax = relax;
  settings.relative_gap = 0;
  return lp::solve(model.model(), settings, limits);
}

/// Random stage boundaries; the first stage begins with op 0.
std::vector<OpId> random_stages(const Graph& graph, Random& random) {
  std::vector<OpId> first{OpId(0)};
  for (OpId op : graph.ops()) {
    if (op != OpId(0) && random.chance(0.5)) first.push_back(op);
  }
  return first;
}

struct Budgets {
  Bytes least, middle, most;
};
Budgets budgets_of(const Graph& graph) {
  const Bytes least = testing::oracle_min_peak(graph, OrderMode::kFixed);
  const Bytes most = simulate(graph, keep_all_plan(graph)).peak;
  return {least, Bytes(least.count() + (most.count() - least.count()) / 2), most};
}

TEST(StageModel, AnyOrderIsNeverAboveTheLeastDurationWhateverTheStages) {
  Random random(4);
  int tight = 0, cases = 0, dearer = 0;
  for (int round = 0; round < 150; ++round) {
    const Graph g = testing::random_graph(random);
    const Budgets b = budgets_of(g);
    for (Bytes budget : {b.least, b.middle}) {
      const Duration truth = *testing::oracle_min_duration(g, OrderMode::kFixed, budget);
      for (int cut = 0; cut < 3; ++cut) {
        StageSpec spec{.budget = budget, .first = {}, .cutoff = std::nullopt};
        if (cut > 0) spec.first = random_stages(g, random);
        if (random.chance(0.5)) spec.cutoff = truth;
        const StageModel model(g, spec);
        for (bool relax : {true, false}) {
          const lp::Solution s = solve(model, relax);
          ASSERT_EQ(s.outcome, lp::Outcome::kOptimal) << "graph " << round << " budget " << budget.count();
          ASSERT_LE(model.duration_of(s.bound), truth)
              << "graph " << round << " budget " << budget.count() << " stages " << model.num_stages();
          if (!relax && cut == 0) {
            ++cases;
            tight += model.duration_of(s.bound) == truth;
            dearer += truth > g.base_duration;
          }
        }
      }
    }
  }
  RecordProperty("cases", cases);
  RecordProperty("tight", tight);
  RecordProperty("dearer", dearer);
  EXPECT_GT(tight * 20, cases * 19);
  EXPECT_GT(dearer, cases / 10);
}

TEST(StageModel, PathsThroughStagesTightenTheRelaxationAndNotTheProgram) {
  Random random(17);
  int tighter = 0;
  for (int round = 0; round < 150; ++round) {
    const Graph g = testing::random_graph(random);
    const Bytes budget = round % 2 == 0 ? budgets_of(g).least : budgets_of(g).middle;
    const Duration truth = *testing::oracle_min_duration(g, OrderMode::kFixed, budget);
    StageSpec spec{.budget = budget, .first = {}, .cutoff = std::nullopt};
    if (round % 3 > 0) spec.first = random_stages(g, random);
    spec.first_runs = random.chance(0.5);
    const StageModel model(g, spec);
    SCOPED_TRACE(::testing::Message() << "graph " << round << " budget " << budget.count());
    const auto bound = [&](bool integer, bool paths) {
      Limits limits;
      const StageEffort effort{.integer = integer, .paths = paths, .fixing_rounds = 1};
      return solve_stages(g, model, spec, effort, limits).bound;
    };
    const Duration loose = bound(false, false), tight = bound(false, true);
    ASSERT_GE(tight, loose);
    ASSERT_LE(tight, truth);
    ASSERT_EQ(bound(true, true), bound(true, false));
    tighter += tight > loose;
  }
  EXPECT_GT(tighter, 0);
}

TEST(StageModel, NoSolutionInWholeNumbersBreaksAPath) {
  Random random(18);
  int checked = 0;
  for (int round = 0; round < 150; ++round) {
    const Graph g = testing::random_graph(random);
    StageSpec spec{.budget = budgets_of(g).least, .first = random_stages(g, random)};
    const StageModel model(g, spec);
    const lp::Solution s = solve(model, false);
    if (!s.x) continue;
    ++checked;
    lp::Model with_paths = model.model();
    ASSERT_EQ(model.add_paths(*s.x, with_paths), 0) << "graph " << round;
  }
  EXPECT_GT(checked, 100);
}

TEST(StageModel, OneStageHoldsAtEachOpWhatKeepAllHolds) {
  Random random(19);
  for (int round = 0; round < 50; ++round) {
    const Graph g = testing::random_graph(random, {.kept_outputs = false, .over = 0, .states = 0});
    const Budgets b = budgets_of(g);
    if (b.least <= g.resident) continue;
    IndexVector<StepId, Bytes> memory;
    simulate(g, keep_all_plan(g), memory);
    const StageModel model(g, {.budget = b.least, .first = {OpId(0)}});
    const std::vector<double> nothing_runs_again(narrow<std::size_t>(model.model().num_columns()), 0.0);
    const double room = real((b.least - g.resident).count());
    for (OpId op : g.ops()) {
      const double held = real((memory[StepId(op.index())] - g.resident).count());
      EXPECT_NEAR(model.excess_at(nothing_runs_again, op), held / room - 1, 1e-9) << "graph " << round;
    }
  }
}

TEST(StageModel, ASolutionIsWithinTheBudgetAtTheEndsOfStages) {
  Random random(20);
  int over = 0;
  for (int round = 0; round < 100; ++round) {
    const Graph g = testing::random_graph(random);
    const StageSpec spec{.budget = budgets_of(g).least, .first = random_stages(g, random)};
    const StageModel model(g, spec);
    const lp::Solution s = solve(model, true);
    if (!s.x || spec.budget <= g.resident) continue;
    for (OpId op : g.ops()) {
      const bool ends_a_stage =
          op.next() == OpId(g.ops().size()) || std::ranges::find(spec.first, op.next()) != spec.first.end();
      const double excess = model.excess_at(*s.x, op);
      if (ends_a_stage) {
        EXPECT_LE(excess, 1e-6) << "graph " << round;
      } else {
        over += excess > 1e-6;
      }
    }
  }
  EXPECT_GT(over, 0);
}

TEST(StageModel, GraphOrderPlansFitTheBudgetAndCostWhatTheModelSays) {
  Random random(5);
  int found = 0;
  for (int round = 0; round < 150; ++round) {
    const Graph g = testing::random_graph(random, {.states = 0});
    const Budgets b = budgets_of(g);
    for (Bytes budget : {b.least, b.middle}) {
      const StageModel model(
          g, {.budget = budget, .rows = StageRows::kGraphOrder, .first = {}, .cutoff = std::nullopt});
      const lp::Solution s = solve(model, false);
      if (!s.x) continue;
      ++found;
      const Plan plan = model.plan_as_run(*s.x);
      const auto violation = validate(g, plan, OrderMode::kFixed, budget);
      ASSERT_FALSE(violation) << "graph " << round << " budget " << budget.count() << ": "
                              << violation->message;
      const double rounded = s.objective - model.objective_step() / 2;
      ASSERT_EQ(simulate(g, plan).duration, model.duration_of(rounded)) << "graph " << round;
    }
  }
  EXPECT_GT(found, 250);
}

}  // namespace
}  // namespace remat
