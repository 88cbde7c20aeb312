// Plans' allocator peaks, and plans within a budget on reserved memory.
#include <gtest/gtest.h>

#include "helpers/errors.h"
#include "helpers/graphs.h"
#include "helpers/oracle.h"
#include "remat/bounds.h"
#include "remat/keep_all.h"
#include "remat/layout.h"
#include "remat/random.h"
#include "remat/reserved.h"

namespace remat {
namespace {

constexpr std::int64_t kMebibyte = 1 << 20;

AllocatorPeaks peaks(const Graph& graph, const Plan& plan, std::string_view allocator, int most_steps = 20) {
  return simulate_allocator(graph, plan, parse_allocator(allocator), most_steps);
}

/// The graph with all sizes multiplied by `factor`.
Graph scaled(Graph graph, std::int64_t factor) {
  for (Bytes& size : graph.bytes) size = Bytes(size.count() * factor);
  for (Bytes& size : graph.workspace) size = Bytes(size.count() * factor);
  graph.resident = Bytes(graph.resident.count() * factor);
  return graph;
}

TEST(AllocatorPeaks, OfAKeptChainAreItsBlocks) {
  const Graph graph = testing::training_chain(3, 12'058'624);
  const Bytes peak = keep_all_peak(graph);
  const std::int64_t most = peak.count() / 12'058'624;
  ASSERT_EQ(most * 12'058'624, peak.count());
  const AllocatorPeaks native = peaks(graph, keep_all_plan(graph), "cuda");
  EXPECT_EQ(native.requested, peak);
  EXPECT_EQ(native.allocated, Bytes(most * 12 * kMebibyte));
  EXPECT_EQ(native.reserved, native.allocated);
  EXPECT_EQ(native.steps, 2);
  EXPECT_TRUE(native.is_steady);
  const AllocatorPeaks expandable = peaks(graph, keep_all_plan(graph), "cuda-expandable");
  EXPECT_EQ(expandable.allocated, peak);
  EXPECT_EQ(expandable.reserved, Bytes((peak.count() / kMebibyte / 20 + 1) * 20 * kMebibyte));
}

/// Resident 600 kB, then a step that makes 2 MiB with a workspace of 30 MiB.
TEST(AllocatorPeaks, CountInputsAndWorkspaces) {
  const Graph graph = testing::make_graph(
      {600'000}, {{.inputs = {0}, .output_bytes = {2 * kMebibyte}, .workspace = 30 * kMebibyte}}, {1});
  const AllocatorPeaks found = peaks(graph, keep_all_plan(graph), "cuda");
  EXPECT_EQ(found.requested, Bytes(600'000 + 32 * kMebibyte));
  EXPECT_EQ(found.allocated, Bytes(1172 * 512 + 32 * kMebibyte));
  EXPECT_EQ(found.reserved, Bytes(52 * kMebibyte));
}

TEST(AllocatorPeaks, OfTheExactAllocatorAreThoseOfTheSimulator) {
  Random random(7);
  for (int round = 0; round < 200; ++round) {
    const Graph graph = testing::random_graph(random);
    const Plan plan = testing::random_plan(graph, random, 8);
    const PlanBuffers buffers = plan_buffers(graph, plan, 1);
    const AllocatorPeaks found = peaks(graph, plan, "exact");
    EXPECT_EQ(found.requested, buffers.resident + live_peak(buffers.problem));
    EXPECT_EQ(found.allocated, found.requested);
    EXPECT_EQ(found.reserved, found.requested);
    if (overwrites(graph, plan).empty()) {
      EXPECT_EQ(found.requested, simulate(graph, plan).peak);
    }
  }
}

TEST(AllocatorPeaks, GrowWithRepeatedStepsUntilNothingNewIsTaken) {
  Random random(8);
  int grew = 0;
  for (int round = 0; round < 200; ++round) {
    const Graph graph = scaled(testing::random_graph(random), 3 * kMebibyte / 2);
    const Plan plan = keep_all_plan(graph);
    for (const char* allocator : {"cuda", "cuda-expandable", "cuda:max_split_size_mb:21"}) {
      const AllocatorPeaks once = peaks(graph, plan, allocator, 1), steady = peaks(graph, plan, allocator);
      ASSERT_TRUE(steady.is_steady);
      EXPECT_LE(once.reserved, steady.reserved);
      EXPECT_LE(steady.requested, steady.allocated);
      EXPECT_LE(steady.allocated, steady.reserved);
      AllocatorPeaks longer = peaks(graph, plan, allocator, steady.steps);
      EXPECT_EQ(longer, steady);
      grew += once.reserved < steady.reserved;
    }
  }
  EXPECT_GT(grew, 0);
}

/// A segment of 20 MiB that is free again is oversize: the requests that made it must not take it.
TEST(AllocatorPeaks, NeverEndToGrowWhereSegmentsForMediumRequestsAreOversize) {
  const Graph graph = testing::training_chain(1, 5 * kMebibyte);
  const AllocatorPeaks few = peaks(graph, keep_all_plan(graph), "cuda:max_split_size_mb:20", 4);
  EXPECT_FALSE(few.is_steady);
  EXPECT_EQ(few.reserved, Bytes(4 * 20 * kMebibyte));
  EXPECT_EQ(peaks(graph, keep_all_plan(graph), "cuda:max_split_size_mb:21").reserved, Bytes(20 * kMebibyte));
}

/// A budget that the plan meets, one that it does not meet, and one that no plan can meet.
TEST(ReservedPlan, IsWithinItsBudgetOrSaysWhatIsProved) {
  Random random(41);
  int found = 0, infeasible = 0;
  for (int round = 0; round < 40; ++round) {
    const Graph graph = scaled(testing::random_graph(random), 5 * kMebibyte);
    const AllocatorConfig allocator = parse_allocator(round % 2 == 0 ? "cuda" : "cuda-expandable");
    const Bytes all = simulate_allocator(graph, keep_all_plan(graph), allocator).reserved;
    const Bytes least = testing::oracle_min_peak(graph, OrderMode::kFixed);
    if (least <= Bytes(1)) continue;
    for (const Bytes budget : {all, Bytes((all + least).count() / 2), least - Bytes(1)}) {
      const Problem problem{&graph, budget};
      Limits limits;
      limits.set_work(100'000);
      const ReservedPlan plan = make_reserved_plan(problem, "auto", {}, allocator, limits);
      if (has_plan(plan.result)) {
        ++found;
        EXPECT_FALSE(validate(graph, *plan.result.plan, problem.order, budget));
        EXPECT_EQ(plan.result.cost, simulate(graph, *plan.result.plan));
        EXPECT_EQ(plan.peaks, simulate_allocator(graph, *plan.result.plan, allocator));
        EXPECT_LE(plan.peaks.reserved, budget);
      }
      if (budget == all) {
        EXPECT_EQ(plan.result.status, Status::kOptimal);
      }
      if (budget < least) {
        EXPECT_FALSE(has_plan(plan.result));
        infeasible += plan.result.status == Status::kInfeasible;
      }
    }
  }
  EXPECT_GT(found, 40);
  EXPECT_GT(infeasible, 20);
}

/// What random plans reserve is never called impossible, and the pools prove more than live bytes do.
TEST(ReservedPlan, IsCalledImpossibleOnlyWhereEachPoolsBoundSaysSo) {
  Random random(43);
  int by_pools = 0;
  for (int round = 0; round < 60; ++round) {
    Graph graph = scaled(testing::random_graph(random), 1 + round % 3 * kMebibyte / 2);
    for (ValueId value : graph.values()) {
      if (random.chance(0.5)) graph.bytes[value] = Bytes(graph.bytes[value].count() / 8);
    }
    graph.resident = Bytes();
    for (ValueId input : graph.graph_inputs) graph.resident += graph.bytes[input];
    const AllocatorConfig allocator = parse_allocator(round % 2 == 0   ? "cuda"
                                                      : round % 4 == 1 ? "cuda-expandable"
                                                                       : "cuda:large_segment_size_mb:15");
    Bytes least = simulate_allocator(graph, keep_all_plan(graph), allocator).reserved;
    for (int k = 0; k < 20; ++k) {
      const Plan plan = testing::random_plan(graph, random, 6);
      least = std::min(least, simulate_allocator(graph, plan, allocator).reserved);
    }
    if (least <= Bytes(1)) continue;
    Limits limits;
    limits.set_work(20'000);
    Problem problem{&graph, least};
    EXPECT_NE(make_reserved_plan(problem, "auto", {}, allocator, limits).result.status, Status::kInfeasible);
    problem.budget = best_peak_bound(graph, OrderMode::kFixed).peak + Bytes(1);
    const ReservedPlan tight = make_reserved_plan(problem, "auto", {}, allocator, limits);
    if (tight.result.status != Status::kInfeasible || tight.result.peak_bound.argument != "pools") continue;
    ++by_pools;
    EXPECT_LE(tight.result.peak_bound.peak, least);
    EXPECT_GT(tight.result.peak_bound.peak, problem.budget);
  }
  EXPECT_GT(by_pools, 10);
}

TEST(ReservedPlan, IsNoPlanWhereEveryStepTakesMore) {
  const Graph graph = testing::training_chain(1, 5 * kMebibyte);
  Limits limits;
  limits.set_work(20'000);
  const Problem problem{&graph, Bytes(kMebibyte * 1000)};
  const AllocatorConfig allocator = parse_allocator("cuda:max_split_size_mb:20");
  EXPECT_EQ(make_reserved_plan(problem, "auto", {}, allocator, limits).result.status, Status::kUnknown);
}

TEST(ReservedPlan, RefusesWhatItCannotDo) {
  const Graph graph = testing::training_chain(3);
  Limits limits;
  Problem problem{&graph, Bytes(10)};
  problem.objective = Objective::kPeak;
  EXPECT_EQ(testing::usage_error([&] { make_reserved_plan(problem, "auto", {}, {}, limits); }),
            "budget_on='reserved' goes with objective='time' only");
  problem.objective = Objective::kTime;
  problem.host.emplace();
  EXPECT_EQ(testing::usage_error([&] { make_reserved_plan(problem, "auto", {}, {}, limits); }),
            "budget_on='reserved' and host= do not go together");
}

}  // namespace
}  // namespace remat
