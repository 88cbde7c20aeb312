// Large neighbourhood search by minimum cuts: plans where several moments bind, better with more work.
#include <gtest/gtest.h>

#include <algorithm>

#include "helpers/graphs.h"
#include "planners/lns/ruin.h"
#include "planners/search/search.h"
#include "remat/generate.h"
#include "remat/keep_all.h"
#include "remat/planner.h"

namespace remat {
namespace {

Graph unet() { return testing::training_step("unet", {.depth = 4}); }

PlanResult plan(const Graph& graph, std::int64_t percent, const char* planner, std::int64_t work,
                std::uint64_t seed = 0) {
  Limits limits;
  limits.set_work(work);
  const Bytes budget(keep_all_peak(graph).count() / 100 * percent);
  return make_plan({&graph, budget}, planner, {.seed = seed, .threads = 1, .set = {}}, limits);
}

TEST(Lns, IsAheadOfOneWalkWhereSeveralMomentsBind) {
  const Graph graph = unet();
  const PlanResult walk = plan(graph, 30, "retention", 2'000'000);
  const PlanResult few = plan(graph, 30, "lns", 100'000), more = plan(graph, 30, "lns", 2'000'000);
  ASSERT_TRUE(has_plan(walk));
  ASSERT_TRUE(has_plan(few));
  ASSERT_TRUE(has_plan(more));
  EXPECT_LT(more.cost.duration, walk.cost.duration);
  EXPECT_LE(more.cost.duration, few.cost.duration);
}

TEST(Lns, EndsTriesEarlyOnceItHasAPlan) {
  const Graph graph = unet();
  const auto counter = [&](std::int64_t percent, Objective objective, std::string_view name) {
    Limits limits;
    limits.set_work(300'000);
    Problem problem{&graph, Bytes(keep_all_peak(graph).count() / 100 * percent)};
    problem.objective = objective;
    const Counters counters = make_plan(problem, "lns", {}, limits).counters;
    return std::ranges::find(counters, name, [](const auto& one) { return one.first; })->second;
  };
  const auto tries = counter(30, Objective::kTime, "tries");
  EXPECT_GT(counter(30, Objective::kTime, "ended_early"), tries / 4);
  EXPECT_LT(counter(30, Objective::kTime, "ended_early"), tries);
  // Where only the peak counts no walk is too slow.
  EXPECT_EQ(counter(30, Objective::kPeak, "ended_early"), 0);
}

TEST(Lns, SameSeedSamePlan) {
  const Graph graph = random_layered({.ops = 120, .seed = 5});
  const PlanResult one = plan(graph, 75, "lns", 300'000, 3), two = plan(graph, 75, "lns", 300'000, 3);
  EXPECT_EQ(one.plan, two.plan);
  EXPECT_EQ(one.counters, two.counters);
}

TEST(Lns, EndsWhereNoTryChangesAnything) {
  Graph graph = random_layered({.ops = 60, .seed = 2});
  graph.recomputable.assign(graph.num_ops(), false);
  const Bytes budget(keep_all_peak(graph).count() / 100 * 95);
  Limits limits;
  limits.set_work(100'000'000);
  EXPECT_FALSE(has_plan(make_plan({&graph, budget, OrderMode::kFree}, "lns", {}, limits)));
  EXPECT_LT(limits.work(), 1'000'000);
}

TEST(Lns, IsNoWorseThanItsStart) {
  const Graph graph = random_layered({.ops = 120, .seed = 6});
  const PlanResult start = plan(graph, 75, "search", 1'000'000);
  ASSERT_TRUE(has_plan(start));
  const std::vector<Plan> starts{*start.plan};
  Problem problem{&graph, Bytes(keep_all_peak(graph).count() / 100 * 75)};
  problem.starts = starts;
  Limits limits;
  limits.set_work(50'000);
  EXPECT_LE(make_plan(problem, "lns", {}, limits).cost.duration, start.cost.duration);
}

TEST(Lns, BeginsFromAnOrderOverTheBudget) {
  const Graph graph = random_layered({.ops = 200, .seed = 1});
  Problem problem{&graph, Bytes(keep_all_peak(graph).count() / 100 * 85), OrderMode::kFree};
  const auto with_work = [&](std::string_view planner, const PlanOptions& options, std::int64_t work) {
    Limits limits;
    limits.set_work(work);
    return make_plan(problem, planner, options, limits);
  };
  const PlanOptions only_order{.set = search::only_first_runs()};
  // Short, so that it does not get down to the budget.
  const PlanResult order = with_work("search", only_order, 50'000);
  ASSERT_FALSE(has_plan(order));
  ASSERT_TRUE(order.plan);
  const PlanResult without = with_work("lns", {}, 100'000);
  const std::vector<Plan> starts{*order.plan};
  problem.starts = starts;
  const PlanResult with = with_work("lns", {}, 100'000);
  ASSERT_TRUE(has_plan(with));
  EXPECT_LT(with.cost.duration, without.cost.duration);
}

/// An allocator that needs more the more steps a plan has.
TEST(Lns, KeepsTheBudgetWithAFootprintAboveThePeak) {
  const Graph graph = unet();
  const Bytes budget(keep_all_peak(graph).count() / 100 * 45);
  Problem problem{&graph, budget};
  const std::function<Bytes(const Plan&, const Simulation&, Limits&)> footprint =
      [](const Plan& plan, const Simulation& cost, Limits&) {
        return Bytes(cost.peak.count() / 1000 * (1040 + std::ssize(plan.steps) % 7));
      };
  const auto run = [&] {
    Limits limits;
    limits.set_work(500'000);
    return find_planner("lns").run(problem, {}, limits);
  };
  const PlanResult by_peak = run();
  problem.footprint = &footprint;
  const PlanResult by_footprint = run();
  ASSERT_TRUE(by_peak.plan && by_footprint.plan);
  Limits limits;
  const Simulation near = simulate(graph, *by_peak.plan), cost = simulate(graph, *by_footprint.plan);
  EXPECT_LE(near.peak, budget);
  EXPECT_GT(footprint(*by_peak.plan, near, limits), budget);
  EXPECT_LE(footprint(*by_footprint.plan, cost, limits), budget);
  EXPECT_GT(cost.peak.count(), budget.count() / 10 * 9);
}

TEST(Lns, ServesBothOrders) {
  const Graph graph = random_layered({.ops = 60, .seed = 2});
  Problem problem{&graph, Bytes(keep_all_peak(graph).count() / 100 * 85), OrderMode::kFree};
  Limits limits;
  limits.set_work(100'000);
  EXPECT_TRUE(has_plan(make_plan(problem, "lns", {}, limits)));
}

TEST(Lns, LowersThePeakAsFarAsItCan) {
  const Graph graph = unet();
  const Problem problem{&graph, kNoBudget, OrderMode::kFixed, Objective::kPeak};
  Bytes last = keep_all_peak(graph);
  for (std::int64_t work : {20'000, 2'000'000}) {
    Limits limits;
    limits.set_work(work);
    const PlanResult found = make_plan(problem, "lns", {}, limits);
    ASSERT_TRUE(found.plan);
    EXPECT_LE(found.cost.peak, last);
    last = found.cost.peak;
  }
  EXPECT_LT(last.count(), keep_all_peak(graph).count() / 2);
}

TEST(Lns, WhatIsRuinedIsAScriptWithFewerReruns) {
  const Graph graph = unet();
  const PlanResult whole = plan(graph, 40, "retention", 2'000'000);
  ASSERT_TRUE(has_plan(whole));
  Random random(7);
  std::size_t least = whole.plan->steps.size();
  for (int i = 0; i < 200; ++i) {
    const Plan rest = steps_of(lns::ruined(graph, script_of(*whole.plan), random));
    ASSERT_FALSE(validate(graph, rest, OrderMode::kFixed));
    ASSERT_LT(rest.steps.size(), whole.plan->steps.size() + 1);
    least = std::min(least, rest.steps.size());
  }
  EXPECT_LT(least, whole.plan->steps.size() - (whole.plan->steps.size() - graph.duration.size()) / 3);
}

TEST(Lns, DurationsNearTheLargestNumbersAreShakenWithin) {
  Graph graph = testing::training_chain(20, 1000, 10);
  for (OpId op : graph.ops()) graph.duration[op] = Duration((kMaxCount - 1) / 100);
  Graph shaken = graph;
  Random random(1);
  for (int i = 0; i < 100; ++i) {
    lns::shake(graph, shaken, random);
    for (OpId op : graph.ops()) ASSERT_GE(shaken.duration[op], Duration());
  }
  EXPECT_NE(shaken.duration, graph.duration);
}

}  // namespace
}  // namespace remat
