// Bounds and proofs on graphs with outputs over inputs: memory falls there, and no bound may stay above it.
#include <gtest/gtest.h>

#include "bounds/cut.h"
#include "exact/retention_cut.h"
#include "helpers/graphs.h"
#include "helpers/long.h"
#include "helpers/oracle.h"
#include "helpers/reproduce.h"
#include "remat/bounds.h"
#include "remat/planner.h"

namespace remat {
namespace {

using testing::make_graph;

const testing::RandomShape kOver{.min_ops = 3, .over = 1};

// a (4) -> b (4, over a) -> c (4, over b): one place is enough for all of them.
TEST(OverBounds, TheFloorCountsAnOutputInThePlaceOfAnInput) {
  const std::vector<testing::TestOp> chain{{.inputs = {}, .output_bytes = {4}},
                                           {.inputs = {0}, .output_bytes = {4}, .over = {{0, 1}}},
                                           {.inputs = {1}, .output_bytes = {4}, .over = {{1, 2}}}};
  EXPECT_EQ(floor_bound(make_graph({}, chain, {})).peak, Bytes(4));
  EXPECT_EQ(floor_bound(make_graph({}, chain, {2})).peak, Bytes(4));
  // If a is recomputed at the end it occupies no memory in between; computed once, it stays.
  EXPECT_EQ(best_peak_bound(make_graph({}, chain, {0}), OrderMode::kFixed).peak, Bytes(4));
  std::vector<testing::TestOp> once = chain;
  once[0].recomputable = false;
  EXPECT_EQ(floor_bound(make_graph({}, once, {0})).peak, Bytes(8));
}

// b writes over u, which d reads too: 8 bytes hold both, with 7 u is recomputed, for 5.
TEST(OverBounds, AnInputThatIsWantedLaterIsHeldOrMadeAgain) {
  const Graph g = make_graph({},
                             {{.inputs = {}, .output_bytes = {4}, .duration = 5},
                              {.inputs = {0}, .output_bytes = {4}, .over = {{0, 1}}},
                              {.inputs = {1}, .output_bytes = {1}},
                              {.inputs = {0, 2}, .output_bytes = {1}}},
                             {3});
  const Duration once = g.base_duration;
  for (OrderMode order : {OrderMode::kFixed, OrderMode::kFree}) {
    EXPECT_EQ(retention_bound(g, OpId(1), Bytes(8), order, 1'000'000), Duration(0));
    EXPECT_EQ(retention_bound(g, OpId(1), Bytes(7), order, 1'000'000), Duration(2)) << "a quarter of 5";
    EXPECT_EQ(retention_bound(g, OpId(1), Bytes(4), order, 1'000'000), Duration(5));
  }
  EXPECT_EQ(fixed_cut_bound(g, Bytes(4)).duration, once + Duration(5));
  EXPECT_EQ(free_cut_bound(g, Bytes(4)).duration, once + Duration(5));
  const RetentionResult found = solve_retention(g, OpId(1), Bytes(6), OrderMode::kFixed, 1'000'000);
  ASSERT_TRUE(found.choice);
  const Plan plan = plan_of(g, *found.choice);
  EXPECT_EQ(simulate(g, plan).peak, Bytes(6));
  EXPECT_EQ(simulate(g, plan).duration, once + Duration(5));
}

TEST(OverBounds, OnThePeakAreNeverAboveTheLeastPeak) {
  Random random(1711);
  int tight = 0, below = 0;
  for (int round = 0; round < 4000; ++round) {
    const Graph g = testing::random_graph(random, kOver);
    for (OrderMode order : {OrderMode::kFixed, OrderMode::kFree}) {
      const Bytes least = testing::oracle_min_peak(g, order), bound = best_peak_bound(g, order).peak;
      ASSERT_LE(floor_bound(g).peak, bound);
      ASSERT_LE(bound, least) << to_string(order);
      tight += bound == least;
      Graph apart = g;
      apart.over = {};
      for ([[maybe_unused]] OpId op : g.ops()) apart.over.end_row();
      ASSERT_LE(least, testing::oracle_min_peak(apart, order));
      below += least < testing::oracle_min_peak(apart, order);
    }
  }
  EXPECT_GT(tight, 7500);
  EXPECT_GT(below, 2000) << "the pairs make a difference";
}

TEST(OverBounds, OnTheDurationAreNeverAboveTheLeastDuration) {
  Random random(1712);
  int dear = 0, cheap_tight = 0, best_tight = 0;
  const int rounds = testing::draws(400, 1000);
  for (int round = 0; round < rounds; ++round) {
    const Graph g = testing::random_graph(random, kOver);
    const OrderMode order = round % 2 == 0 ? OrderMode::kFixed : OrderMode::kFree;
    const Bytes least = testing::oracle_min_peak(g, order), most = simulate(g, keep_all_plan(g)).peak;
    for (Bytes budget : {least, Bytes((least.count() + most.count()) / 2)}) {
      const Duration truth = *testing::oracle_min_duration(g, order, budget);
      const DurationBound cheap = cheap_duration_bound(g, budget, order);
      ASSERT_LE(cheap.duration, truth) << cheap.argument;
      for (OpId at : g.ops()) {
        ASSERT_LE(g.base_duration + retention_bound(g, at, budget, order, 1'000'000), truth);
      }
      Limits limits;
      const std::optional<Duration> known = random.chance(0.5) ? std::optional(truth) : std::nullopt;
      const DurationBound best = best_duration_bound(g, budget, order, known, limits);
      ASSERT_LE(best.duration, truth) << best.argument;
      if (truth == g.base_duration) continue;
      ++dear;
      cheap_tight += cheap.duration == truth;
      best_tight += best.duration == truth;
    }
  }
  EXPECT_GT(dear, rounds * 3 / 10);
  EXPECT_GT(cheap_tight * 4, dear);
  EXPECT_GT(best_tight * 3, dear);
}

TEST(OverBounds, ProofsEqualTheOracle) {
  Random random(1713);
  int optimal = 0, cases = 0, dear = 0;
  for (int round = 0; round < 300; ++round) {
    const Graph g = testing::random_graph(random, kOver);
    const Bytes budget = testing::oracle_min_peak(g, OrderMode::kFixed);
    const Duration truth = *testing::oracle_min_duration(g, OrderMode::kFixed, budget);
    const Problem problem{&g, budget, OrderMode::kFixed, Objective::kTime};
    Limits limits;
    limits.set_work(3000);
    const PlanResult start = make_plan(problem, "search", {}, limits);
    if (!has_plan(start)) continue;
    Limits none;
    const Proof proof = prove_optimal(g, budget, OrderMode::kFixed, *start.plan, none);
    ++cases;
    dear += truth > g.base_duration;
    optimal += proof.optimal;
    ASSERT_LE(proof.bound.duration, truth);
    const Plan& best = proof.plan ? *proof.plan : *start.plan;
    ASSERT_FALSE(validate(g, best, OrderMode::kFixed, budget));
    if (proof.optimal) {
      ASSERT_EQ(simulate(g, best).duration, truth);
    }
  }
  EXPECT_GT(cases, 250);
  EXPECT_GT(dear, 80);
  EXPECT_GT(optimal * 10, cases * 9);
}

}  // namespace
}  // namespace remat
