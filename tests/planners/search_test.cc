// search: every technique on and off against the oracle, seeds, limits, interruption.
#include "planners/search/search.h"

#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <chrono>
#include <string>
#include <thread>

#include "helpers/graphs.h"
#include "helpers/oracle.h"
#include "helpers/reproduce.h"
#include "remat/error.h"
#include "remat/generate.h"
#include "remat/io.h"
#include "remat/planner.h"

namespace remat {
namespace {

constexpr std::array kSwitches{"insert_chain", "erase", "shift",     "insert_erase", "erase_insert",
                               "window",       "trim",  "restart",   "adapt",        "constructive",
                               "aim",          "mix",   "retention", "deep_chain"};

Problem percent(const Graph& graph, std::int64_t share, OrderMode order = OrderMode::kFixed) {
  const Bytes peak = simulate(graph, keep_all_plan(graph)).peak;
  return {.graph = &graph, .budget = Bytes(peak.count() * share / 100), .order = order};
}

/// A budget between the smallest peak of any plan and just below keep-all: one that some plan meets.
Problem solvable(const Graph& graph, Random& random, OrderMode order) {
  const std::int64_t least = testing::oracle_min_peak(graph, order).count();
  const std::int64_t most = simulate(graph, keep_all_plan(graph)).peak.count();
  return {.graph = &graph, .budget = Bytes(random.between(least, std::max(least, most - 1))), .order = order};
}

/// A chain of `layers` with skip connections and sizes that differ from layer to layer.
Graph uneven_chain(int layers) {
  std::vector<testing::TestOp> ops;
  for (int i = 0; i < layers; ++i) {
    testing::TestOp op;
    if (i > 0) op.inputs.push_back(i - 1);
    if (i > 3 && i % 3 == 0) op.inputs.push_back(i - 3);
    op.output_bytes = {8 * (1 + i * 7 % 5)};
    op.duration = 5 + i * 11 % 17;
    ops.push_back(op);
  }
  for (int i = layers - 1; i >= 0; --i) {
    testing::TestOp op;
    op.inputs = {2 * layers - 2 - i, i};
    if (i == layers - 1) op.inputs = {i};
    op.output_bytes = {8 * (1 + i * 7 % 5)};
    op.duration = 9 + i * 5 % 13;
    ops.push_back(op);
  }
  return testing::make_graph({}, ops, {2 * layers - 1});
}

class SearchSwitches : public ::testing::TestWithParam<OrderMode> {};

TEST_P(SearchSwitches, AnyCombinationStaysValidAndNeverBeatsTheOracle) {
  const OrderMode order = GetParam();
  Random random(11);
  int met = 0;
  for (std::uint32_t combination = 0; combination < 1u << kSwitches.size(); combination += 3) {
    const Graph graph = testing::random_graph(random);
    PlanOptions options;
    options.seed = combination;
    for (std::size_t i = 0; i < kSwitches.size(); ++i)
      options.set[kSwitches[i]] = combination >> i & 1 ? "on" : "off";
    const Problem problem = solvable(graph, random, order);
    Limits limits;
    limits.set_work(2000);
    const PlanResult result = testing::recorded_plan(problem, "search", options, limits);
    const auto least = testing::oracle_min_duration(graph, order, problem.budget);
    if (!has_plan(result)) continue;
    ++met;
    ASSERT_TRUE(least.has_value()) << format_graph(graph);
    ASSERT_GE(result.cost.duration, *least) << format_graph(graph);
    if (result.status == Status::kOptimal) {
      ASSERT_EQ(result.cost.duration, *least) << format_graph(graph);
    }
  }
  EXPECT_GT(met, 500);
}

TEST_P(SearchSwitches, FindsTheOptimumOfTinyGraphsWithEverythingOn) {
  const OrderMode order = GetParam();
  Random random(5);
  int solved = 0;
  for (int round = 0; round < 150; ++round) {
    const Graph graph = testing::random_graph(random);
    const Problem problem = solvable(graph, random, order);
    const auto least = testing::oracle_min_duration(graph, order, problem.budget);
    Limits limits;
    limits.set_work(20000);
    const PlanResult result = testing::recorded_plan(problem, "search", {}, limits);
    solved += has_plan(result) && result.cost.duration == *least;
  }
  // The search proves nothing: a missed optimum is no error, many would be.
  EXPECT_GE(solved, 145);
}

INSTANTIATE_TEST_SUITE_P(Orders, SearchSwitches, ::testing::Values(OrderMode::kFixed, OrderMode::kFree),
                         [](const auto& test) { return std::string(to_string(test.param)); });

TEST(Search, MakesTheSamePlanFromTheSameSeedAndWork) {
  const Graph graph = uneven_chain(60);
  for (OrderMode order : {OrderMode::kFixed, OrderMode::kFree}) {
    const Problem problem = percent(graph, 60, order);
    std::vector<PlanResult> results;
    for (const std::uint64_t seed : {3u, 3u, 4u}) {
      Limits limits;
      limits.set_work(200'000);
      results.push_back(testing::recorded_plan(problem, "search", {.seed = seed, .set = {}}, limits));
      EXPECT_EQ(results.back().stopped_by, StoppedBy::kWork);
    }
    EXPECT_EQ(results[0].plan, results[1].plan);
    EXPECT_EQ(results[0].counters, results[1].counters);
    EXPECT_NE(results[0].counters, results[2].counters);
  }
}

TEST(Search, GetsNoWorseWithMoreWork) {
  const Graph graph = uneven_chain(80);
  const Problem problem = percent(graph, 50);
  Limits little, much;
  little.set_work(20'000);
  much.set_work(2'000'000);
  const PlanResult first = testing::recorded_plan(problem, "search", {}, little);
  const PlanResult second = testing::recorded_plan(problem, "search", {}, much);
  ASSERT_TRUE(has_plan(second));
  EXPECT_FALSE(better(problem, first, second));
}

TEST(Search, HonoursTimeLimitsOnSixThousandOps) {
  const Graph graph = uneven_chain(3000);
  for (const double limit : {0.0, 0.001, 0.1}) {
    for (const char* planner : {"search", "auto"}) {
      Limits limits;
      limits.set_time(limit);
      const auto begun = std::chrono::steady_clock::now();
      const PlanResult result = testing::recorded_plan(percent(graph, 40), planner, {}, limits);
      const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begun;
      EXPECT_EQ(result.stopped_by, StoppedBy::kTime) << planner << " with " << limit << " s";
      EXPECT_TRUE(result.plan.has_value());
      // A wide margin over the promised 0.2 s: the machine may be busy, a sanitizer may be on.
      EXPECT_LT(took.count(), limit + 1.5) << planner << " with " << limit << " s";
    }
  }
}

TEST(Search, ReturnsTheBestPlanSoFarWhenInterrupted) {
  const Graph graph = uneven_chain(100);
  const Problem problem = percent(graph, 60);
  for (const int threads : {1, 3}) {
    for (const int milliseconds : {0, 5, 60}) {
      std::atomic<bool> stop = false;
      Limits limits;
      limits.set_stop(&stop).set_time(60);
      std::jthread interrupter([&] {
        std::this_thread::sleep_for(std::chrono::milliseconds(milliseconds));
        stop = true;
      });
      const PlanResult result =
          testing::recorded_plan(problem, "search", {.threads = threads, .set = {}}, limits);
      EXPECT_EQ(result.stopped_by, StoppedBy::kInterrupted);
      ASSERT_TRUE(result.plan.has_value());
      EXPECT_EQ(validate(graph, *result.plan, problem.order), std::nullopt);
    }
  }
}

TEST(Search, StopsAtOnceWhereKeepAllFits) {
  const Graph graph = uneven_chain(20);
  Limits limits;
  limits.set_time(60);
  const PlanResult result = testing::recorded_plan(percent(graph, 100), "search", {}, limits);
  EXPECT_EQ(result.status, Status::kOptimal);
  EXPECT_EQ(result.stopped_by, StoppedBy::kProof);
  EXPECT_LT(result.seconds, 5);
}

TEST(Search, ReachesTheSmallestPeakOfTinyGraphs) {
  Random random(21);
  int reached = 0;
  for (int round = 0; round < 100; ++round) {
    const Graph graph = testing::random_graph(random);
    const OrderMode order = round % 2 == 0 ? OrderMode::kFixed : OrderMode::kFree;
    Problem problem{.graph = &graph, .budget = kNoBudget, .order = order, .objective = Objective::kPeak};
    Limits limits;
    limits.set_work(20000);
    const PlanResult result = testing::recorded_plan(problem, "search", {}, limits);
    ASSERT_TRUE(result.plan.has_value());
    const Bytes least = testing::oracle_min_peak(graph, order);
    ASSERT_GE(result.cost.peak, least) << format_graph(graph);
    reached += result.cost.peak == least;
  }
  EXPECT_GE(reached, 95);
}

TEST(Search, ForTheLeastPeakMakesAgainWhatTakesManyOps) {
  // 0 -> 1 -> ... -> 119 -> 121, and 120, which needs 100 bytes and reads nothing, runs before 121.
  std::vector<testing::TestOp> ops;
  for (std::int64_t i = 0; i < 120; ++i)
    ops.push_back({i > 0 ? std::vector{i - 1} : std::vector<std::int64_t>{}, {8}});
  ops.push_back({{}, {1}, 1, 99});
  ops.push_back({{119, 120}, {1}});
  const Graph graph = testing::make_graph({}, ops, {});
  const Problem problem{.graph = &graph, .budget = kNoBudget, .objective = Objective::kPeak};
  Limits limits;
  limits.set_work(100'000);
  const PlanResult result =
      testing::recorded_plan(problem, "search", {0, 1, {{"constructive", "off"}}}, limits);
  EXPECT_EQ(result.cost.peak, Bytes(100));
}

TEST(Search, MovesOfFirstRunsAloneNeedLessMemoryInFreeOrder) {
  const Graph graph = random_layered({.ops = 200, .seed = 1});
  const PlanOptions options{.set = search::only_first_runs()};
  const Problem problem = percent(graph, 95, OrderMode::kFree);
  Limits limits;
  limits.set_work(2'000'000);
  const PlanResult result = make_plan(problem, "search", options, limits);
  ASSERT_TRUE(result.plan);
  EXPECT_EQ(std::ssize(result.plan->steps), std::ssize(graph.duration));
  EXPECT_LE(result.cost.peak, problem.budget);
}

TEST(Search, StartsFromPlansKnownBefore) {
  // 0 -> 1 -> 2 -> 3 -> 4, and 4 reads 0: at 12 bytes the first op has to run again.
  const Graph graph =
      testing::make_graph({}, {{{}, {6}}, {{0}, {4}}, {{1}, {6}}, {{2}, {4}}, {{0, 3}, {1}}}, {});
  const std::vector<Plan> known{testing::plan_of({0, 1, 2, 3, 0, 4})};
  Problem problem{.graph = &graph, .budget = Bytes(11), .starts = known};
  Limits limits;
  limits.set_work(1);
  const PlanResult result = testing::recorded_plan(problem, "search", {}, limits);
  EXPECT_EQ(result.status == Status::kFeasible || result.status == Status::kOptimal, true);
  EXPECT_EQ(result.cost.duration.count(), 6);
}

TEST(Search, RefusesOptionsItDoesNotKnow) {
  const Graph graph = uneven_chain(5);
  Limits limits;
  PlanOptions options;
  options.set["insert_chains"] = "on";
  EXPECT_THROW(testing::recorded_plan(percent(graph, 95), "search", options, limits), UsageError);
}

}  // namespace
}  // namespace remat
