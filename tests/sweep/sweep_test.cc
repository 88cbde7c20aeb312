#include "remat/sweep.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>

#include "helpers/graphs.h"
#include "helpers/long.h"
#include "remat/error.h"

namespace remat {
namespace {

SweepResult sweep_with_work(const Graph& graph, OrderMode order, int points = 8) {
  Limits limits;
  limits.set_work(200'000);
  PlanStore store;
  SweepOptions options;
  options.order = order;
  options.points = points;
  return sweep(graph, options, limits, store);
}

TEST(Sweep, OverheadNeverFallsAsTheBudgetFalls) {
  Random random(6);
  for (int round = 0; round < testing::draws(20, 60); ++round) {
    const Graph graph = testing::random_graph(random, {.min_ops = 3, .max_ops = 14, .max_values = 20});
    for (OrderMode order : {OrderMode::kFixed, OrderMode::kFree}) {
      const SweepResult result = sweep_with_work(graph, order);
      EXPECT_EQ(result.points.front().budget, result.keep_all_peak);
      EXPECT_EQ(result.points.front().result.cost.duration, graph.base_duration);
      EXPECT_GE(result.smallest_peak, result.peak_bound.peak);
      for (std::size_t i = 0; i < result.points.size(); ++i) {
        const SweepPoint& point = result.points[i];
        ASSERT_TRUE(point.result.plan);
        ASSERT_FALSE(validate(graph, *point.result.plan, order, point.budget));
        ASSERT_GE(point.result.cost.duration, point.result.duration_bound.duration);
        if (i > 0) {
          ASSERT_LT(point.budget, result.points[i - 1].budget);
          ASSERT_GE(point.result.cost.duration, result.points[i - 1].result.cost.duration);
        }
      }
    }
  }
}

TEST(Sweep, MarksOneKneeBelowTheChord) {
  const SweepResult result = sweep_with_work(testing::training_chain(12), OrderMode::kFixed);
  const auto knees =
      std::count_if(result.points.begin(), result.points.end(), [](const auto& p) { return p.knee; });
  EXPECT_LE(knees, 1);
  for (const SweepPoint& point : {result.points.front(), result.points.back()}) EXPECT_FALSE(point.knee);
}

TEST(Sweep, BudgetsAreLookedAtOnBothSides) {
  const Graph graph = testing::training_chain(40);
  Limits limits;
  limits.set_work(200'000);
  PlanStore store;
  SweepOptions options;
  options.points = 3;
  options.around = {Bytes(20), Bytes(1000), Bytes(1)};
  const SweepResult result = sweep(graph, options, limits, store);
  EXPECT_EQ(result.apart, Bytes(8)) << "the largest power of two that is a quarter of 41 - 5 or less";
  std::vector<Bytes> budgets;
  for (const SweepPoint& point : result.points) {
    budgets.push_back(point.budget);
    EXPECT_FALSE(validate(graph, *point.result.plan, OrderMode::kFixed, point.budget));
  }
  for (const std::int64_t wanted : {28, 20, 12, 9}) {
    EXPECT_EQ(std::ranges::count(budgets, Bytes(wanted)), 1) << wanted;
  }
  EXPECT_EQ(budgets.size(), 7u) << "none above the keep-all peak or below the smallest one";
  EXPECT_TRUE(std::ranges::is_sorted(budgets, std::ranges::greater()));
}

TEST(Sweep, NeedsTwoPoints) {
  EXPECT_THROW(sweep_with_work(testing::training_chain(2), OrderMode::kFixed, 1), UsageError);
}

TEST(Sweep, GivesWhatItKnowsWhenTheLimitIsReachedAtOnce) {
  const Graph graph = testing::training_chain(6);
  Limits limits;
  limits.set_time(0);
  PlanStore store;
  const SweepResult result = sweep(graph, {}, limits, store);
  ASSERT_FALSE(result.points.empty());
  EXPECT_TRUE(result.points.front().result.plan);
  EXPECT_EQ(result.stopped_by, StoppedBy::kTime);
}

}  // namespace
}  // namespace remat
