#include "remat/limits.h"

#include <gtest/gtest.h>

#include "remat/random.h"

namespace remat {
namespace {

TEST(Limits, WithoutAnyLimitNothingIsReached) {
  Limits limits;
  EXPECT_FALSE(limits.spend(1'000'000));
  EXPECT_FALSE(limits.reached());
  EXPECT_FALSE(limits.stopped_by());
  EXPECT_FALSE(limits.seconds_left());
}

TEST(Limits, WorkIsReachedExactlyAndStaysReached) {
  Limits limits;
  limits.set_work(10);
  EXPECT_FALSE(limits.spend(9));
  EXPECT_TRUE(limits.spend(1));
  EXPECT_TRUE(limits.reached());
  EXPECT_EQ(limits.stopped_by(), StoppedBy::kWork);
}

TEST(Limits, TimeIsReachedWhileWorkIsSpent) {
  Limits limits;
  limits.set_time(0.01);
  while (!limits.spend(1)) {
  }
  EXPECT_EQ(limits.stopped_by(), StoppedBy::kTime);
  EXPECT_GE(limits.seconds(), 0.01);
}

TEST(Limits, ATimeOfZeroIsReachedAtOnce) {
  Limits limits;
  limits.set_time(0);
  EXPECT_TRUE(limits.reached());
}

TEST(Limits, TheStopFlagInterrupts) {
  std::atomic<bool> stop = false;
  Limits limits;
  limits.set_stop(&stop);
  EXPECT_FALSE(limits.reached());
  stop = true;
  EXPECT_TRUE(limits.reached());
  stop = false;
  EXPECT_TRUE(limits.reached());
  EXPECT_EQ(limits.stopped_by(), StoppedBy::kInterrupted);
}

TEST(Limits, TheFirstReasonIsKept) {
  std::atomic<bool> stop = false;
  Limits limits;
  limits.set_stop(&stop).set_work(5);
  EXPECT_TRUE(limits.spend(5));
  stop = true;
  EXPECT_TRUE(limits.reached());
  EXPECT_EQ(limits.stopped_by(), StoppedBy::kWork);
}

TEST(Limits, ANestedShareHasItsOwnWorkAndHandsItOn) {
  Limits parent;
  parent.set_work(100);
  {
    Limits half(parent, 0.5);
    EXPECT_EQ(half.work_left(), 50);
    EXPECT_TRUE(half.spend(50));
  }
  EXPECT_EQ(parent.work(), 50);
  EXPECT_FALSE(parent.reached());
}

TEST(Limits, ANestedObjectStopsWithItsParent) {
  std::atomic<bool> stop = false;
  Limits parent;
  parent.set_stop(&stop);
  Limits child(parent, 1.0);
  Limits grandchild(child, 0.5);
  EXPECT_FALSE(grandchild.reached());
  stop = true;
  EXPECT_TRUE(grandchild.reached());
  EXPECT_EQ(grandchild.stopped_by(), StoppedBy::kInterrupted);
}

TEST(Limits, ProgressReachesTheOutermostListener) {
  std::vector<std::string> heard;
  Limits parent;
  parent.set_progress([&](const Progress& p) { heard.push_back(p.planner); });
  Limits child(parent, 1.0);
  Progress progress;
  progress.planner = "greedy";
  child.report(progress);
  EXPECT_EQ(heard, std::vector<std::string>{"greedy"});
}

TEST(Random, GivesTheSameNumbersEverywhere) {
  Random random(42);
  const std::vector<std::uint64_t> first = {random.next(), random.next()};
  EXPECT_EQ(first, (std::vector<std::uint64_t>{1546998764402558742ULL, 6990951692964543102ULL}));
}

TEST(Random, BelowIsUniformOverItsRange) {
  Random random(1);
  std::vector<int> seen(7, 0);
  for (int k = 0; k < 70'000; ++k) ++seen[static_cast<std::size_t>(random.below(7))];
  for (int count : seen) EXPECT_NEAR(count, 10'000, 500);
}

TEST(Random, ShuffleKeepsTheItems) {
  Random random(3);
  std::vector<int> items = {1, 2, 3, 4, 5, 6, 7, 8};
  random.shuffle(std::span(items));
  EXPECT_NE(items, (std::vector<int>{1, 2, 3, 4, 5, 6, 7, 8}));
  std::sort(items.begin(), items.end());
  EXPECT_EQ(items, (std::vector<int>{1, 2, 3, 4, 5, 6, 7, 8}));
}

}  // namespace
}  // namespace remat
