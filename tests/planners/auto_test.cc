// Which planner `auto` calls when, on training steps and random graphs.
#include <gtest/gtest.h>

#include <algorithm>
#include <ctime>

#include "helpers/graphs.h"
#include "remat/bounds.h"
#include "remat/generate.h"
#include "remat/keep_all.h"
#include "remat/planner.h"

namespace remat::automatic {
namespace {

using Names = std::vector<std::string>;

/// What was called, in sequence.
Names schedule(const PlanResult& result) {
  Names names;
  for (const LogEntry& entry : result.log) names.push_back(entry.arm);
  return names;
}

PlanResult plan(const Graph& graph, std::int64_t percent, std::int64_t work,
                OrderMode order = OrderMode::kFixed, const PlanOptions& options = {}) {
  const Bytes peak = simulate(graph, keep_all_plan(graph)).peak;
  Limits limits;
  limits.set_work(work);
  return make_plan({&graph, Bytes(peak.count() / 100 * percent), order}, "auto", options, limits);
}

TEST(Auto, CallsNothingElseWhereKeepAllFits) {
  const Graph graph = testing::training_step("gpt", {.depth = 2});
  const PlanResult result = plan(graph, 101, 100'000);
  EXPECT_EQ(result.status, Status::kOptimal);
  EXPECT_EQ(schedule(result), Names{"keep_all"});
}

TEST(Auto, BoundsSmallGraphsInFixedOrderBeforeItSearches) {
  const Graph graph = random_layered({.ops = 60, .seed = 3});
  EXPECT_EQ(schedule(plan(graph, 80, 300'000)),
            (Names{"keep_all", "retention", "bound", "search", "lns", "bound", "search", "lns"}));
  // The stage model knows the fixed order only. An order that needs less memory by itself is optimal.
  EXPECT_EQ(schedule(plan(graph, 80, 300'000, OrderMode::kFree)), (Names{"keep_all", "search_for_order"}));
}

TEST(Auto, LooksInFreeOrderForAnOrderThatNeedsLessMemoryBeforeAllThatRunsAgain) {
  const Graph graph = random_layered({.ops = 300, .seed = 1});
  const PlanResult fixed = plan(graph, 75, 1'000'000), free = plan(graph, 75, 1'000'000, OrderMode::kFree);
  const Names names = schedule(free);
  ASSERT_GT(names.size(), 2u);
  EXPECT_EQ((Names{names[1], names[2]}), (Names{"search_for_order", "retention"}));
  EXPECT_EQ(fixed.status, Status::kFeasible);
  EXPECT_LT(free.cost.duration, fixed.cost.duration);
}

TEST(Auto, SearchesForTheLeastPeakInFixedOrderFirst) {
  const Graph graph = random_layered({.ops = 60, .seed = 3});
  const auto names = [&](OrderMode order) {
    const Problem problem{&graph, kNoBudget, order, Objective::kPeak};
    Limits limits;
    limits.set_work(300'000);
    return schedule(make_plan(problem, "auto", {}, limits));
  };
  EXPECT_EQ(names(OrderMode::kFixed), (Names{"keep_all", "search", "search", "lns", "search"}));
  EXPECT_EQ(names(OrderMode::kFree), (Names{"keep_all", "search", "search", "search", "lns", "search"}));
}

TEST(Auto, SearchesAndCutsFromTheRetentionPlanOnTrainingSteps) {
  for (const Graph& graph :
       {testing::training_step("gpt", {.depth = 12}), testing::training_step("resnet")}) {
    const Names names = schedule(plan(graph, 60, 300'000));
    ASSERT_GE(names.size(), 4u);
    EXPECT_EQ(Names(names.begin(), names.begin() + 4), (Names{"keep_all", "retention", "search", "lns"}));
  }
  EXPECT_EQ(schedule(plan(testing::training_step("unet", {.depth = 4}), 60, 300'000)),
            (Names{"keep_all", "retention", "bound"}));
}

TEST(Auto, ProvesTheOptimumOfASmallTrainingStepFromFewMoments) {
  const PlanResult result = plan(testing::training_step("unet", {.depth = 2}), 60, 4'000'000);
  EXPECT_EQ(result.status, Status::kOptimal);
  EXPECT_EQ(schedule(result).back(), "bound");
}

/// The last program's solution names the next moment, where the relaxation names none.
TEST(Auto, ProvesAChainNearItsLeastPeakFromMomentsThatPlansName) {
  const PlanResult result = plan(chain({.length = 8, .bytes = 100}), 40, 3'000'000);
  EXPECT_EQ(result.status, Status::kOptimal);
  EXPECT_EQ(result.cost.duration, Duration(46));
}

TEST(Auto, TriesAllThatIsCheapWhereNoPlanIsAtHand) {
  EXPECT_EQ(schedule(plan(testing::training_chain(200), 10, 300'000)),
            (Names{"keep_all", "retention", "search", "lns", "search", "lns"}));
  // No chain of stages, so that rotor is not asked.
  const PlanOptions no_cuts{.set = {{"lns_ops", "0"}}};
  EXPECT_EQ(schedule(plan(random_layered({.ops = 300}), 70, 100'000, OrderMode::kFixed, no_cuts)),
            (Names{"keep_all", "retention", "greedy", "tw_remat", "evict", "search"}));
}

TEST(Auto, TakesTurnsAndBoundsWhereSeveralMomentsBind) {
  const Names far_from_the_bound{"keep_all", "retention", "bound", "search", "lns", "bound", "lns", "lns"};
  EXPECT_EQ(schedule(plan(testing::training_step("unet", {.depth = 4}), 30, 2'000'000)), far_from_the_bound);
}

TEST(Auto, LooksForTheLeastPeakFromNothingWhereTwoRoundsEndWithoutAPlan) {
  const Graph graph = random_layered({.ops = 100, .seed = 4});
  const auto times_for_peak = [&](std::int64_t work) {
    const Names names =
        schedule(plan(graph, 50, work, OrderMode::kFixed, {.set = {{"round_seconds", "0.01"}}}));
    return std::ranges::count(names, "search_for_peak");
  };
  EXPECT_EQ(times_for_peak(200'000), 0);
  EXPECT_EQ(times_for_peak(400'000), 1);
  EXPECT_EQ(times_for_peak(800'000), 2);
  EXPECT_EQ(times_for_peak(1'600'000), 3);
}

TEST(Auto, FindsOnDenseGraphsWhatSearchFindsAlone) {
  const Graph graph = random_layered({.ops = 300, .seed = 1});
  const Bytes peak = simulate(graph, keep_all_plan(graph)).peak;
  const Problem problem{&graph, Bytes(peak.count() * 7 / 10)};
  const auto overhead = [&](std::string_view planner) {
    Limits limits;
    limits.set_work(1'500'000);
    const PlanResult result = make_plan(problem, planner, {}, limits);
    return has_plan(result) ? static_cast<double>((result.cost.duration - graph.base_duration).count())
                            : 1e300;
  };
  // 0.185 of the graph's time where turns do not follow what was gained, 0.174 with search alone.
  EXPECT_LE(overhead("auto"), overhead("search"));
}

TEST(Auto, FindsWithinALimitWhatItFoundWithinHalfOfIt) {
  for (const Graph& graph :
       {testing::training_step("unet", {.depth = 4}), random_layered({.ops = 200, .seed = 5})}) {
    Duration before(kMaxCount);
    Duration proved;
    for (std::int64_t work : {50'000, 100'000, 200'000, 400'000, 800'000}) {
      const PlanResult result =
          plan(graph, 60, work, OrderMode::kFixed, {.seed = 3, .set = {{"round_seconds", "0.005"}}});
      const Duration duration = has_plan(result) ? result.cost.duration : Duration(kMaxCount);
      EXPECT_LE(duration, before) << work;
      EXPECT_GE(result.duration_bound.duration, proved) << work;
      before = duration;
      proved = result.duration_bound.duration;
    }
    EXPECT_LT(before, Duration(kMaxCount));
  }
}

TEST(Auto, SearchesAndCutsForTheLeastPeak) {
  const Graph graph = testing::training_step("unet", {.depth = 3});
  Limits limits;
  limits.set_work(100'000);
  const Problem problem{&graph, kNoBudget, OrderMode::kFixed, Objective::kPeak};
  EXPECT_EQ(schedule(make_plan(problem, "auto", {}, limits)),
            (Names{"keep_all", "search", "search", "lns", "search"}));
}

// The searches in fixed order begin from starts, and a start that is valid in free order alone is none.
TEST(Auto, TakesStartsOfFreeOrderForTheLeastPeak) {
  const Graph graph = testing::make_graph({},
                                          {{.inputs = {}, .output_bytes = {5}},
                                           {.inputs = {}, .output_bytes = {5}},
                                           {.inputs = {0, 1}, .output_bytes = {5}, .over = {{0, 2}}},
                                           {.inputs = {}, .output_bytes = {5}, .workspace = 5},
                                           {.inputs = {2, 3}, .output_bytes = {5}, .over = {{2, 4}}}},
                                          {1, 4});
  Plan start;
  for (int op : {0, 0, 0, 1, 3, 1, 2, 4}) start.steps.push_back(OpId(op));
  Problem problem{&graph, kNoBudget, OrderMode::kFree, Objective::kPeak};
  problem.starts = std::span(&start, 1);
  Limits limits;
  limits.set_work(30);
  EXPECT_TRUE(has_plan(make_plan(problem, "auto", {}, limits)));
}

TEST(Auto, BoundsLargerGraphsWhereThereIsTime) {
  const Graph graph = testing::training_step("gpt", {.depth = 12});
  const Bytes peak = simulate(graph, keep_all_plan(graph)).peak;
  Limits limits;
  // The work ends it; the time only has to be long enough to be worth a bound.
  limits.set_time(60).set_work(300'000);
  EXPECT_EQ(schedule(make_plan({&graph, Bytes(peak.count() / 10 * 6)}, "auto", {}, limits)),
            (Names{"keep_all", "retention", "search", "lns", "bound", "search", "lns"}));
}

TEST(Auto, BeginsNoSearchOfALargeGraphThatItCouldNotEnd) {
  const Graph graph = testing::training_step("gpt", {.depth = 12});
  const Bytes peak = simulate(graph, keep_all_plan(graph)).peak;
  const Problem problem{&graph, Bytes(peak.count() / 100 * 60), OrderMode::kFixed};
  // A second per op is more than any limit here; without a limit there is time.
  PlanOptions options;
  options.set = {
      {"large_ops", "1"}, {"lns_ops", "1"}, {"search_seconds_per_op", "1"}, {"bound_seconds_per_op", "1"}};
  Limits short_time;
  short_time.set_time(60);
  const PlanResult hurried = make_plan(problem, "auto", options, short_time);
  EXPECT_EQ(schedule(hurried), (Names{"keep_all", "retention"}));
  EXPECT_EQ(hurried.status, Status::kFeasible);
  EXPECT_EQ(hurried.stopped_by, StoppedBy::kTime);
  Limits work;
  work.set_work(300'000);
  EXPECT_EQ(schedule(make_plan(problem, "auto", options, work)), (Names{"keep_all", "retention", "search"}));
}

/// Nothing that looks at no limit may be quadratic: a loop over half of all pairs of ops takes minutes here,
/// all that is linear a few seconds. Processor time, so that others on the machine do not count.
TEST(Auto, KeepsToItsLimitOnFourHundredThousandOps) {
  const Graph graph = testing::training_step("gpt", {.depth = 8000});
  ASSERT_GE(graph.ops().size(), 400'000);
  const Bytes budget(keep_all_peak(graph).count() / 2);
  const std::clock_t begin = std::clock();
  Limits limits;
  limits.set_time(2);
  make_plan({&graph, budget}, "auto", {}, limits);
  Limits for_bound;
  for_bound.set_time(1);
  best_duration_bound(graph, budget, OrderMode::kFixed, std::nullopt, for_bound);
  constexpr double kSeconds = 15;
  EXPECT_LT(static_cast<double>(std::clock() - begin) / CLOCKS_PER_SEC, kSeconds);
}

TEST(Auto, ReportsWhoMadeEachBetterPlan) {
  const Graph graph = testing::training_step("unet", {.depth = 4});
  const Bytes peak = simulate(graph, keep_all_plan(graph)).peak;
  Names reported;
  Limits limits;
  limits.set_work(1'000'000).set_progress([&](const Progress& progress) {
    if (reported.empty() || reported.back() != progress.planner) reported.push_back(progress.planner);
  });
  make_plan({&graph, Bytes(peak.count() / 10 * 3)}, "auto", {}, limits);
  EXPECT_EQ(reported, (Names{"keep_all", "retention", "search", "lns"}));
}

TEST(Auto, LogsWhatEachCallDid) {
  const Graph graph = testing::training_step("unet", {.depth = 4});
  const PlanResult result = plan(graph, 30, 2'000'000);
  ASSERT_FALSE(result.log.empty());
  EXPECT_FALSE(result.log.front().before);
  std::int64_t work = 0;
  for (std::size_t i = 0; i < result.log.size(); ++i) {
    const LogEntry& entry = result.log[i];
    ASSERT_TRUE(entry.after) << entry.arm;
    work += entry.work;
    if (i == 0) continue;
    const LogEntry& last = result.log[i - 1];
    EXPECT_EQ(entry.before->duration, last.after->duration);
    EXPECT_EQ(entry.before->peak, last.after->peak);
    EXPECT_GE(entry.bound, last.bound);
    EXPECT_GE(entry.round, last.round);
    EXPECT_GE(entry.seconds, last.seconds);
    // A plan over the budget has no gap.
    EXPECT_EQ(gap(entry).has_value(), entry.after->within_budget);
  }
  const LogEntry& end = result.log.back();
  EXPECT_EQ(end.after->duration, result.cost.duration);
  EXPECT_EQ(end.after->peak, result.cost.peak);
  EXPECT_EQ(end.bound, result.duration_bound.duration);
  EXPECT_EQ(gap(end), gap(result));
  EXPECT_LE(work, 2'100'000);
}

TEST(Auto, LogsTheJointPlanWithAHostBeforeThoseWithoutCopies) {
  const Graph graph = testing::training_step("unet", {.depth = 2});
  Problem problem{&graph, Bytes(keep_all_peak(graph).count() * 6 / 10)};
  problem.host = Host{.out = 25'000'000'000, .in = 25'000'000'000, .budget = std::nullopt};
  Limits limits;
  limits.set_work(300'000);
  const Names names = schedule(make_plan(problem, "auto", {}, limits));
  ASSERT_GT(names.size(), 1u);
  EXPECT_EQ((Names{names[0], names[1]}), (Names{"offload", "keep_all"}));
}

}  // namespace
}  // namespace remat::automatic
