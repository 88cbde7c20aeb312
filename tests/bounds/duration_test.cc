#include <gtest/gtest.h>

#include "bounds/cut.h"
#include "helpers/graphs.h"
#include "helpers/oracle.h"
#include "remat/bounds.h"

namespace remat {
namespace {

using testing::make_graph;

// a(10) and b(4) are read only by the last op; c needs 8 on the way. With 20 bytes, b alone does not make
// room, so a runs again: its 7 is the price, in any order of the ops (c comes after a and b by `after`).
TEST(DurationBounds, CutPaysForWhatDoesNotFitBesideAnOp) {
  const Graph g = make_graph({},
                             {{.inputs = {}, .output_bytes = {10}, .duration = 7},
                              {.inputs = {}, .output_bytes = {4}, .duration = 100},
                              {.inputs = {0, 1}, .output_bytes = {1}, .duration = 1},
                              {.inputs = {2}, .output_bytes = {8}, .duration = 1},
                              {.inputs = {0, 1, 3}, .output_bytes = {0}, .duration = 1}},
                             {});
  const Bytes budget(19);
  EXPECT_EQ(fixed_cut_bound(g, budget).duration,
            Duration(112));  // 4 of the 10 bytes of a must go: 0.4 x 7, rounded down
  EXPECT_EQ(free_cut_bound(g, budget).duration, fixed_cut_bound(g, budget).duration);
}

TEST(DurationBounds, OfEveryKindAreNeverAboveTheLeastDurationOfTinyGraphs) {
  Random random(77);
  int cheap_better = 0, best_tight = 0, cases = 0;
  for (int round = 0; round < 200; ++round) {
    const Graph g = testing::random_graph(random);
    for (OrderMode order : {OrderMode::kFixed, OrderMode::kFree}) {
      const Bytes least = testing::oracle_min_peak(g, order);
      const Bytes most = simulate(g, keep_all_plan(g)).peak;
      for (std::int64_t part : {0, 1, 2}) {
        const Bytes budget(least.count() + (most.count() - least.count()) * part / 3);
        const Duration truth = *testing::oracle_min_duration(g, order, budget);
        SCOPED_TRACE(::testing::Message()
                     << "graph " << round << " " << to_string(order) << " budget " << budget.count());
        const DurationBound cheap = cheap_duration_bound(g, budget, order);
        ASSERT_LE(cheap.duration, truth) << cheap.argument;
        Limits limits;
        const std::optional<Duration> known = random.chance(0.5) ? std::optional(truth) : std::nullopt;
        const DurationBound best = best_duration_bound(g, budget, order, known, limits);
        ASSERT_LE(best.duration, truth) << best.argument;
        ASSERT_GE(best.duration, cheap.duration);
        cheap_better += cheap.duration > g.base_duration;
        if (truth == g.base_duration) continue;
        ++cases;
        best_tight += best.duration == truth;
      }
    }
  }
  EXPECT_GT(cheap_better, 40);
  EXPECT_GT(best_tight * 4, cases);
  RecordProperty("cheap_better", cheap_better);
  RecordProperty("best_tight", best_tight);
  RecordProperty("dearer_than_base", cases);
}

TEST(DurationBounds, ProofsHoldAndFindTheOptimumFromAnyPlan) {
  Random random(78);
  int proved = 0, improved = 0, cases = 0, found_faster = 0;
  for (int round = 0; round < 400; ++round) {
    const Graph g = testing::random_graph(random);
    const Bytes budget = testing::oracle_min_peak(g, OrderMode::kFixed);
    const Duration truth = *testing::oracle_min_duration(g, OrderMode::kFixed, budget);
    for (int tries = 0; tries < 30; ++tries) {
      const Plan plan = testing::random_plan(g, random, 1 + tries / 5);
      const Simulation cost = simulate(g, plan);
      if (cost.peak > budget) continue;
      SCOPED_TRACE(::testing::Message() << "graph " << round << " budget " << budget.count());
      Limits limits;
      const Proof proof = prove_optimal(g, budget, OrderMode::kFixed, plan, limits);
      ASSERT_LE(proof.bound.duration, truth) << proof.bound.argument;
      Duration best = cost.duration;
      if (proof.plan) {
        ASSERT_FALSE(validate(g, *proof.plan, OrderMode::kFixed, budget));
        ASSERT_LT(simulate(g, *proof.plan).duration, best);
        best = simulate(g, *proof.plan).duration;
        ++improved;
      }
      if (proof.optimal) {
        ASSERT_EQ(best, truth);
      }
      std::optional<Plan> faster;
      const DurationBound few =
          best_duration_bound(g, budget, OrderMode::kFixed, cost.duration, limits, &faster);
      ASSERT_LE(few.duration, truth) << few.argument;
      if (faster) {
        ASSERT_FALSE(validate(g, *faster, OrderMode::kFixed, budget));
        ASSERT_LT(simulate(g, *faster).duration, cost.duration);
        found_faster += 1;
      }
      proved += proof.optimal;
      ++cases;
      break;
    }
  }
  EXPECT_GT(cases, 200);
  EXPECT_GT(proved * 10, cases * 9);
  EXPECT_GT(improved, 20);
  EXPECT_GT(found_faster, 0);
}

TEST(DurationBounds, StopAtTheWorkLimitWithTheSameBoundEachTime) {
  Random random(79);
  const Graph g = testing::training_chain(40, 5, 3);
  const Bytes budget(60);
  Duration last;
  for (std::int64_t units : {1, 1'000, 30'000, 1'000'000}) {
    std::optional<Duration> first;
    for (int again = 0; again < 2; ++again) {
      Limits limits;
      limits.set_work(units);
      const Duration bound = best_duration_bound(g, budget, OrderMode::kFixed, std::nullopt, limits).duration;
      if (first) {
        EXPECT_EQ(bound, *first) << units;
      }
      first = bound;
    }
    EXPECT_GE(*first, last);
    last = *first;
  }
  EXPECT_GT(last, g.base_duration);
}

}  // namespace
}  // namespace remat
