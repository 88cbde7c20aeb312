#include "bounds/moments.h"

#include <gtest/gtest.h>

#include "helpers/graphs.h"
#include "helpers/oracle.h"
#include "remat/plan.h"

namespace remat {
namespace {

TEST(Moments, AreNeverAboveTheLeastDurationOfTinyGraphs) {
  Random random(79);
  int tight = 0, cases = 0;
  for (int round = 0; round < 300; ++round) {
    const Graph g = testing::random_graph(random);
    const Bytes least = testing::oracle_min_peak(g, OrderMode::kFixed);
    const Bytes most = simulate(g, keep_all_plan(g)).peak;
    const Bytes budget(least.count() + (most.count() - least.count()) * (round % 3) / 3);
    const Duration truth = *testing::oracle_min_duration(g, OrderMode::kFixed, budget);
    const std::optional<Duration> known = random.chance(0.5) ? std::optional(truth) : std::nullopt;
    DurationBound best{"base", g.base_duration};
    Limits limits;
    Moments(g, budget).raise(known, limits, best);
    ASSERT_LE(best.duration, truth) << best.argument << " graph " << round << " budget " << budget.count();
    if (truth == g.base_duration) continue;
    ++cases;
    tight += best.duration == truth;
  }
  EXPECT_GT(cases, 50);
  EXPECT_GT(tight * 2, cases);
}

TEST(Moments, ProveMoreThanOneMomentWhereSeveralBind) {
  const Graph g = testing::training_step("unet", {.depth = 4});
  const Bytes budget(simulate(g, keep_all_plan(g)).peak.count() / 100 * 30);
  Limits limits;
  limits.set_work(3'000'000);
  DurationBound best = cheap_duration_bound(g, budget, OrderMode::kFixed);
  const Duration one = best.duration - g.base_duration;
  Moments(g, budget).raise(std::nullopt, limits, best);
  EXPECT_GT((best.duration - g.base_duration).count() * 10, one.count() * 11) << best.argument;
}

TEST(Moments, GoOnWhereTheLimitsEndedThem) {
  const Graph g = testing::training_step("unet", {.depth = 4});
  const Bytes budget(simulate(g, keep_all_plan(g)).peak.count() / 100 * 30);
  const auto proved = [&](int calls, std::int64_t work) {
    Moments moments(g, budget);
    DurationBound best = cheap_duration_bound(g, budget, OrderMode::kFixed);
    for (int call = 0; call < calls; ++call) {
      Limits limits;
      limits.set_work(work);
      moments.raise(std::nullopt, limits, best);
    }
    return best.duration;
  };
  const Duration once = proved(1, 200'000), often = proved(8, 200'000);
  EXPECT_GT(often, once);
  // In an integer program that takes several calls.
  EXPECT_GT(proved(20, 200'000), often);
}

}  // namespace
}  // namespace remat
