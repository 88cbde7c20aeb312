#include "remat/largest.h"

#include <gtest/gtest.h>

#include "helpers/graphs.h"
#include "helpers/long.h"
#include "remat/error.h"
#include "remat/generate.h"
#include "remat/keep_all.h"

namespace remat {
namespace {

Graph gpt(std::int64_t batch, std::int64_t sequence = 32) {
  TrainingOptions options;
  options.model = "gpt";
  options.settings.depth = 2;
  options.settings.width = 64;
  options.settings.heads = 2;
  options.settings.vocabulary = 128;
  options.settings.batch = batch;
  options.settings.sequence = sequence;
  options.device = parse_device("a100");
  return training_graph(options);
}

std::vector<Graph> gpt_steps(std::int64_t batch) { return {gpt(batch)}; }

LargestResult largest_with_work(const StepsOfSize& steps, Bytes budget, LargestOptions options = {}) {
  Limits limits;
  limits.set_work(testing::is_long() ? 20'000'000 : 4'000'000);
  PlanStore store;
  return find_largest(steps, budget, options, limits, store);
}

TEST(GraphFamily, IsExactWhereBytesAreAffineOrQuadraticInTheSize) {
  GraphFamily batches, lengths;
  for (std::int64_t size : {2, 4}) batches.add(size, gpt(size));
  for (std::int64_t size : {16, 32, 64}) lengths.add(size, gpt(2, size));
  for (std::int64_t size : {3, 5, 8, 100}) {
    EXPECT_EQ(batches.at(size)->bytes, gpt(size).bytes) << size;
    EXPECT_EQ(batches.at(size)->resident, gpt(size).resident) << size;
    EXPECT_EQ(lengths.at(16 * size)->bytes, gpt(2, 16 * size).bytes) << size;
    EXPECT_EQ(lengths.at(16 * size)->workspace, gpt(2, 16 * size).workspace) << size;
    EXPECT_TRUE(same_structure(*batches.at(size), gpt(size)));
  }
  EXPECT_EQ(batches.at(4), gpt(4));
}

TEST(GraphFamily, DurationsLieOnTheLineThroughTheNeighbours) {
  GraphFamily family;
  family.add(2, testing::training_chain(3, 1, 10));
  family.add(6, testing::training_chain(3, 1, 50));
  EXPECT_EQ(family.at(3)->duration[OpId(0)], Duration(20));
  EXPECT_EQ(family.at(8)->duration[OpId(0)], Duration(70));
  EXPECT_EQ(family.at(1)->duration[OpId(0)], Duration(0));
  EXPECT_EQ(family.at(8)->base_duration, Duration(6 * 70));
}

TEST(GraphFamily, KnowsNothingBetweenOtherStructures) {
  GraphFamily family;
  EXPECT_FALSE(family.at(1));
  family.add(1, testing::training_chain(3));
  family.add(4, testing::training_chain(4));
  EXPECT_TRUE(family.at(1));
  EXPECT_FALSE(family.at(2));
  family.add(8, testing::training_chain(4, 2));
  EXPECT_TRUE(same_structure(*family.at(16), testing::training_chain(4)));
  EXPECT_EQ(family.at(16)->bytes[ValueId(1)], Bytes(4));
  EXPECT_THROW(family.add(0, testing::training_chain(2)), UsageError);
}

TEST(Largest, HasAPlanAndAProofThatTheNextSizeHasNone) {
  const Bytes budget(4 << 20);
  const LargestResult found = largest_with_work(gpt_steps, budget);
  ASSERT_TRUE(found.largest);
  ASSERT_TRUE(found.impossible);
  EXPECT_GT(keep_all_peak(gpt(*found.largest)), budget);
  EXPECT_LE(*found.largest, *found.impossible - 1);
  EXPECT_GT(best_peak_bound(gpt(*found.impossible), OrderMode::kFixed).peak, budget);
  EXPECT_LE(best_peak_bound(gpt(*found.impossible - 1), OrderMode::kFixed).peak, budget);
  for (const SizeRow& row : found.rows) {
    EXPECT_EQ(row.fits(), row.size <= *found.largest) << row.size;
    if (!row.fits()) continue;
    const PlanResult& result = row.results.front();
    EXPECT_FALSE(validate(row.graphs.front(), *result.plan, OrderMode::kFixed, budget));
    EXPECT_EQ(simulate(row.graphs.front(), *result.plan).peak, row.peak());
  }
}

TEST(Largest, TableRisesAndHasTheBestThroughput) {
  const LargestResult found = largest_with_work(gpt_steps, Bytes(4 << 20), {.rows = 6});
  ASSERT_TRUE(found.best);
  double best = 0, marked = 0;
  for (std::size_t i = 0; i < found.rows.size(); ++i) {
    EXPECT_TRUE(i == 0 || found.rows[i].size > found.rows[i - 1].size);
    if (found.rows[i].fits()) best = std::max(best, found.rows[i].throughput());
    if (found.rows[i].size == *found.best) marked = found.rows[i].throughput();
  }
  EXPECT_GT(best, 0);
  EXPECT_EQ(best, marked);
  EXPECT_EQ(found.rows.front().size, 1);
  EXPECT_EQ(found.rows.back().size, *found.largest + 1);
}

// Cases with a proof that the next size is impossible; other results depend on the time spent on each size.
TEST(Largest, IsTheSameFromAnyGuess) {
  const Bytes budget(2 << 20);
  const LargestResult found = largest_with_work(gpt_steps, budget, {.rows = 0});
  ASSERT_TRUE(found.largest);
  ASSERT_EQ(found.impossible, *found.largest + 1);
  EXPECT_EQ(found.rows.size(), 2U);
  for (const std::int64_t guess : {std::int64_t{1}, *found.largest, *found.largest + 1, std::int64_t{500}}) {
    const LargestResult again = largest_with_work(gpt_steps, budget, {.guess = guess, .rows = 0});
    EXPECT_EQ(again.largest, found.largest) << guess;
    EXPECT_EQ(again.impossible, found.impossible) << guess;
  }
}

TEST(Largest, LooksAtMultiplesOnly) {
  const LargestResult all = largest_with_work(gpt_steps, Bytes(4 << 20), {.rows = 0});
  const LargestResult found =
      largest_with_work(gpt_steps, Bytes(4 << 20), {.least = 3, .multiple = 4, .rows = 0});
  EXPECT_EQ(*found.largest, *all.largest / 4 * 4);
  for (const SizeRow& row : found.rows) EXPECT_EQ(row.size % 4, 0);
}

TEST(Largest, EndsAtTheMostThatWasAskedFor) {
  const LargestResult found = largest_with_work(gpt_steps, Bytes(std::int64_t{1} << 50), {.most = 9});
  EXPECT_EQ(found.largest, 9);
  EXPECT_FALSE(found.impossible);
}

TEST(Largest, ProvesThatNotEvenTheLeastFits) {
  const LargestResult found = largest_with_work(gpt_steps, Bytes(1000), {.least = 3});
  EXPECT_FALSE(found.largest);
  EXPECT_EQ(found.impossible, 3);
  ASSERT_EQ(found.rows.size(), 1U);
  EXPECT_EQ(found.rows.front().status(), Status::kInfeasible);
}

TEST(Largest, AllStepsOfASizeHaveToFit) {
  const auto both = [](std::int64_t size) { return std::vector<Graph>{gpt(size), gpt(2 * size)}; };
  const LargestResult two = largest_with_work(both, Bytes(4 << 20), {.rows = 0});
  const LargestResult one = largest_with_work(gpt_steps, Bytes(4 << 20), {.rows = 0});
  EXPECT_EQ(*two.largest, *one.largest / 2);
}

TEST(Largest, SaysWhichSizeItDoesNotKnow) {
  const auto few = [](std::int64_t size) { return size > 2 ? std::vector<Graph>() : gpt_steps(size); };
  EXPECT_EQ(largest_with_work(few, Bytes(4 << 20)).missing, 4);
}

TEST(Largest, RefusesSizesOutOfRange) {
  const auto run = [](LargestOptions options) { largest_with_work(gpt_steps, Bytes(1 << 20), options); };
  EXPECT_THROW(run({.least = 0}), UsageError);
  EXPECT_THROW(run({.most = kMostSize + 1}), UsageError);
  EXPECT_THROW(run({.least = 9, .most = 8}), UsageError);
  EXPECT_THROW(run({.least = 5, .most = 7, .multiple = 8}), UsageError);
  EXPECT_THROW(run({.planner = "none"}), UsageError);
}

TEST(Largest, OptionsAreThoseOfThePlannerThatWasAskedFor) {
  const PlanOptions of_auto{.set = {{"lns_ops", "1000"}}}, of_another{.set = {{"buy_back", "off"}}};
  EXPECT_TRUE(largest_with_work(gpt_steps, Bytes(4 << 20), {.rows = 0, .plan = of_auto}).largest);
  EXPECT_THROW(largest_with_work(gpt_steps, Bytes(4 << 20), {.rows = 0, .plan = of_another}), UsageError);
}

TEST(Largest, AGapIsStatedWhereTheLimitEndsTheSearch) {
  Limits limits;
  limits.set_time(0);
  PlanStore store;
  const LargestResult found = find_largest(gpt_steps, Bytes(4 << 20), {}, limits, store);
  EXPECT_TRUE(!found.largest || !found.impossible || *found.largest < *found.impossible);
  EXPECT_EQ(found.stopped_by, StoppedBy::kTime);
}

}  // namespace
}  // namespace remat
