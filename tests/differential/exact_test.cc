#include "differential/exact.h"

#include <gtest/gtest.h>

#include "differential/random_tiny.h"
#include "helpers/oracle.h"
#include "helpers/reproduce.h"

namespace remat::differential {
namespace {

TEST(Exact, TradesPeakForDurationOnAChain) {
  // a (4) -> b (1) -> c (1) -> d (4), and d reads a too: a and d are in memory together in every plan.
  const exact::Graph fan{
      {4, 1, 1, 4}, {}, {3}, {{{}, {0}, {}, 5}, {{0}, {1}, {}, 1}, {{1}, {2}, {}, 1}, {{0, 2}, {3}, {}, 1}}};
  EXPECT_EQ(exact::trade_off(fan, true), (std::vector<exact::Cost>{{9, 8}}));
  // a (4) -> b (1) -> c (9) -> d (1) -> e (1), and e reads a: dropped while c is made, a runs again for 5.
  const exact::Graph wide{
      {4, 1, 9, 1, 1},
      {},
      {},
      {{{}, {0}, {}, 5}, {{0}, {1}, {}, 1}, {{1}, {2}, {}, 1}, {{2}, {3}, {}, 1}, {{0, 3}, {4}, {}, 1}}};
  EXPECT_EQ(exact::trade_off(wide, true), (std::vector<exact::Cost>{{10, 14}, {14, 9}}));
}

TEST(Exact, AgreesWithTheLibrarysOracleAndSimulator) {
  // Two independent implementations: if they differ, one of them is wrong.
  Random random(3);
  int compared = 0;
  for (int round = 0; round < 60; ++round) {
    const exact::Graph tiny = random_tiny(random);
    if (tiny.ops.size() > 7) continue;  // the oracle's limit
    ++compared;
    const Graph graph = testing::recorded(built(tiny));
    std::vector<int> steps;
    for (OpId op : keep_all_plan(graph).steps) steps.push_back(op.index());
    ASSERT_EQ(exact::cost_of(tiny, steps).peak, simulate(graph, keep_all_plan(graph)).peak.count());
    for (OrderMode order : {OrderMode::kFixed, OrderMode::kFree}) {
      const auto curve = exact::trade_off(tiny, order == OrderMode::kFixed);
      if (curve.front().duration >= kMaxCount) continue;  // the oracle counts in 63 bits
      ASSERT_EQ(curve.front().peak, testing::oracle_min_peak(graph, order).count());
      for (const exact::Cost& cost : curve) {
        const auto least =
            testing::oracle_min_duration(graph, order, Bytes(static_cast<std::int64_t>(cost.peak)));
        ASSERT_TRUE(least);
        ASSERT_EQ(cost.duration, least->count());
      }
    }
  }
  EXPECT_GT(compared, 40);
}

}  // namespace
}  // namespace remat::differential
