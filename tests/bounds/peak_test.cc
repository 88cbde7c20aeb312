#include <gtest/gtest.h>

#include "bounds/last_run.h"
#include "helpers/graphs.h"
#include "helpers/oracle.h"
#include "remat/bounds.h"

namespace remat {
namespace {

using testing::make_graph;

// a(4), b(4) -> u; a and b read x(9). Whichever of the two comes last, the other is alive beside x:
// 9 + 4 + 4, while no single op needs more than 9 + 4.
TEST(PeakBounds, PebblingSeesTheOtherInputBesideTheLastOne) {
  const Graph g = make_graph({},
                             {{.inputs = {}, .output_bytes = {9}},
                              {.inputs = {0}, .output_bytes = {4}},
                              {.inputs = {0}, .output_bytes = {4}},
                              {.inputs = {1, 2}, .output_bytes = {1}}},
                             {});
  EXPECT_EQ(floor_bound(g).peak, Bytes(13));
  const PeakBound bound = best_peak_bound(g, OrderMode::kFixed);
  EXPECT_EQ(bound.peak, Bytes(17));
  EXPECT_EQ(bound.argument, "pebbling");
  EXPECT_EQ(testing::oracle_min_peak(g, OrderMode::kFixed), Bytes(17));
}

// a(8, never again) is read by the last op; b(1) and c(6) run in between.
TEST(PeakBounds, ForcedCountsWhatMayNotBeMadeAgain) {
  const Graph g = make_graph({},
                             {{.inputs = {}, .output_bytes = {8}, .recomputable = false},
                              {.inputs = {}, .output_bytes = {1}},
                              {.inputs = {1}, .output_bytes = {6}},
                              {.inputs = {0}, .output_bytes = {1}}},
                             {});
  EXPECT_EQ(forced_bound(g).peak, Bytes(15));
  EXPECT_EQ(forced_bound(g).op, OpId(2));
  EXPECT_EQ(testing::oracle_min_peak(g, OrderMode::kFixed), Bytes(15));
  EXPECT_LE(best_peak_bound(g, OrderMode::kFree).peak, testing::oracle_min_peak(g, OrderMode::kFree));
}

TEST(PeakBounds, KeptOutputsAreInMemoryTogetherWhenTheLastOfThemIsMade) {
  const Graph g = make_graph({3},
                             {{.inputs = {0}, .output_bytes = {5}},
                              {.inputs = {0}, .output_bytes = {5}, .workspace = 4},
                              {.inputs = {0}, .output_bytes = {5}, .workspace = 4}},
                             {2, 3});
  // Whichever kept output comes last, its workspace is needed beside the other one.
  EXPECT_EQ(floor_bound(g).peak, Bytes(13));
  EXPECT_EQ(best_peak_bound(g, OrderMode::kFixed).peak, Bytes(17));
}

TEST(PeakBounds, AreNeverAboveTheLeastPeakOfTinyGraphs) {
  Random random(2024);
  int better = 0, tight = 0, by_last_run = 0, alone_better = 0;
  constexpr int kGraphs = 3000;
  for (int round = 0; round < kGraphs; ++round) {
    const Graph g = testing::random_graph(random);
    for (OrderMode order : {OrderMode::kFixed, OrderMode::kFree}) {
      const Bytes least = testing::oracle_min_peak(g, order);
      const PeakBound bound = best_peak_bound(g, order);
      ASSERT_LE(bound.peak, least) << "graph " << round << " in " << to_string(order) << " order, by "
                                   << bound.argument;
      ASSERT_GE(bound.peak, floor_bound(g).peak);
      better += bound.peak > floor_bound(g).peak;
      tight += bound.peak == least;
      by_last_run += bound.argument == "last_run";
      const PeakBound alone = last_run_bound(g, order, floor_bound(g), 1'000'000);
      ASSERT_LE(alone.peak, least) << "graph " << round << ", last_run alone";
      alone_better += alone.peak > floor_bound(g).peak;
    }
  }
  EXPECT_GT(better, kGraphs / 10);
  EXPECT_GT(tight, kGraphs);
  EXPECT_GT(by_last_run, 0);
  EXPECT_GT(alone_better, kGraphs / 10);
  RecordProperty("better_than_floor", better);
  RecordProperty("tight", tight);
  RecordProperty("by_last_run", by_last_run);
  RecordProperty("alone_better", alone_better);
}

TEST(PeakBounds, CostLittleOnALongChain) {
  const Graph g = testing::training_chain(50'000, 7);
  EXPECT_EQ(best_peak_bound(g, OrderMode::kFixed).peak, Bytes(21));
}

}  // namespace
}  // namespace remat
