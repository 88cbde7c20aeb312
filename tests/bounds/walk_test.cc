#include "bounds/walk.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "exact/retention_cut.h"
#include "helpers/graphs.h"
#include "helpers/oracle.h"
#include "remat/plan.h"

namespace remat {
namespace {

TEST(Walk, FindsNothingToRepairWithinTheBudget) {
  const Graph g = testing::training_chain(10);
  const Plan keep_all = keep_all_plan(g);
  Limits limits;
  EXPECT_FALSE(dearest_repair(g, script_of(keep_all), simulate(g, keep_all).peak, {}, limits).at);
  EXPECT_TRUE(repairs_in_turn(g, simulate(g, keep_all).peak, 8, limits).empty());
}

TEST(Walk, BeginsWithTheMomentThatProvesMost) {
  Random random(81);
  int cases = 0;
  for (int round = 0; round < 200; ++round) {
    const Graph g = testing::random_graph(random);
    const Bytes budget = testing::oracle_min_peak(g, OrderMode::kFixed);
    Limits limits;
    const std::vector<Repair> repairs = repairs_in_turn(g, budget, 8, limits);
    if (repairs.empty()) continue;
    ++cases;
    Duration most;
    for (OpId op : g.ops())
      most = std::max(most, retention_bound(g, op, budget, OrderMode::kFixed, 1'000'000));
    EXPECT_EQ(repairs.front().extra, most) << "graph " << round;
  }
  EXPECT_GT(cases, 50);
}

TEST(Walk, GoesToNoMomentTwice) {
  const Graph g = testing::training_chain(60);
  const Bytes budget(simulate(g, keep_all_plan(g)).peak.count() / 5);
  Limits limits;
  std::vector<OpId> seen;
  for (const Repair& repair : repairs_in_turn(g, budget, 8, limits)) seen.push_back(repair.at);
  ASSERT_GT(seen.size(), 1u);
  std::ranges::sort(seen);
  EXPECT_EQ(std::ranges::adjacent_find(seen), seen.end());
  Limits more;
  const Repair repair = dearest_repair(g, script_of(keep_all_plan(g)), budget, seen, more);
  EXPECT_EQ(std::ranges::find(seen, repair.at), seen.end());
}

}  // namespace
}  // namespace remat
