// Joint plans for problems with a host, by `auto`.
#include <gtest/gtest.h>

#include <algorithm>

#include "base/numbers.h"
#include "exact/relief.h"
#include "helpers/copies_oracle.h"
#include "helpers/graphs.h"
#include "helpers/hosts.h"
#include "planners/offload/channel_prices.h"
#include "planners/offload/fetch_graph.h"
#include "planners/offload/moves.h"
#include "planners/offload/timetable.h"
#include "planners/offload/worth_copying.h"
#include "remat/error.h"
#include "remat/io.h"
#include "remat/planner.h"

namespace remat {
namespace {

using testing::kBytesPerUs;

PlanResult planned(const Problem& problem, std::int64_t work) {
  Limits limits;
  limits.set_work(work);
  return make_plan(problem, "auto", {}, limits);
}

Problem problem_of(const Graph& graph, Bytes budget, const Host& host) {
  Problem problem{.graph = &graph, .budget = budget};
  problem.host = host;
  return problem;
}

TEST(Offload, OnTinyGraphsIsNeverBetterThanBruteForceAndMostlyAsGood) {
  Random random(7);
  int points = 0, equal = 0, found = 0;
  for (int i = 0; i < 60; ++i) {
    Graph graph = testing::random_graph(random, {.min_ops = 3, .max_ops = 5, .max_values = 4, .over = 0});
    graph.time_unit = "us";
    const Host host{.out = kBytesPerUs * (1 + random.below(6)),
                    .in = kBytesPerUs * (1 + random.below(6)),
                    .budget = std::nullopt,
                    .shared = random.chance(0.3)};
    // All values and a rerun: nearly everything that such small graphs have.
    for (const auto& [peak, least] : testing::best_with_copies(graph, host, 1, 2)) {
      const PlanResult result = planned(problem_of(graph, peak, host), 3000);
      ++points;
      if (!has_plan(result)) continue;
      ++found;
      ASSERT_LE(result.cost.peak, peak);
      equal += result.cost.duration <= least;
    }
  }
  RecordProperty("points", points);
  RecordProperty("found", found);
  RecordProperty("equal", equal);
  EXPECT_GE(found, points * 9 / 10);
  EXPECT_GE(equal, points * 9 / 10);
}

/// Scripts by random changes, from every op once.
template <class See>
void see_scripts(const Graph& graph, std::uint64_t seed, int count, See&& see) {
  Random random(seed);
  offload::Moves moves(graph, random);
  ASSERT_TRUE(moves.any());
  Script script = script_of(keep_all_plan(graph));
  for (int i = 0; i < count; ++i) {
    moves.start_from(script, StepId(random.below(graph.ops().size())));
    script = without_unread(graph, moves.changed(i % 2 == 0));
    see(script);
  }
}

TEST(Offload, TimesAndMeasuresAScriptAsTheReferenceSimulatorDoes) {
  Random random(3);
  int copies = 0, exact = 0, scripts = 0;
  for (int i = 0; i < 60; ++i) {
    Graph graph = testing::random_graph(random, {.min_ops = 5, .max_ops = 7, .max_values = 6});
    graph.time_unit = "us";
    const Host host{.out = kBytesPerUs * (1 + random.below(6)),
                    .in = kBytesPerUs * (1 + random.below(6)),
                    .latency_ns = 1000 * random.below(2),
                    .budget = std::nullopt,
                    .shared = random.chance(0.3)};
    if (!offload::Moves(graph, random).any()) continue;
    const Bytes most = simulate(graph, keep_all_plan(graph)).peak;
    offload::Timetable timetable(graph, Bytes(most.count() * 3 / 4), host);
    see_scripts(graph, 5, 40, [&](const Script& script) {
      const Simulation told = timetable.evaluate(script);
      const Plan plan = timetable.plan();
      const auto violation = validate(graph, plan, OrderMode::kFixed, std::nullopt, &host);
      ASSERT_FALSE(violation) << violation->message << '\n' << format_graph(graph);
      const Simulation real = simulate(graph, plan, &host);
      ASSERT_EQ(told.duration, real.duration);
      ASSERT_EQ(told.traffic.stalled, real.traffic.stalled);
      Wide stalled = 0;
      for (const auto& stall : timetable.stalls()) {
        stalled += stall.length;
        ASSERT_GT(stall.length, 0);
        ASSERT_GE(stall.copying, 0);
        ASSERT_LE(stall.first, stall.last);
        ASSERT_LT(stall.last, OpId(graph.ops().size()));
      }
      ASSERT_EQ(stalled, Wide(real.traffic.stalled.count()));
      ASSERT_EQ(told.traffic.out, real.traffic.out);
      ASSERT_EQ(told.traffic.host_peak, real.traffic.host_peak);
      ASSERT_GE(told.peak, real.peak);
      exact += told.peak == real.peak;
      copies += narrow<int>(std::ssize(plan.copies));
      ++scripts;
    });
  }
  EXPECT_GT(copies, 1000);
  EXPECT_GE(exact, scripts * 9 / 10);
}

/// Of a walk from keep-all.
Script joint_choice(const Graph& graph, Bytes budget, const FetchPrices& prices) {
  Script last;
  Limits none;
  relieve(graph, script_of(keep_all_plan(graph)), budget, &prices, none, ReliefEffort::kFull,
          [&](const Script& script, Bytes) {
            last = script;
            return true;
          });
  return last;
}

TEST(Offload, ChoosesJointlyByThePricesOfCopies) {
  Graph graph = testing::training_chain(12, 1000, 10);
  graph.time_unit = "us";
  const Bytes budget(simulate(graph, keep_all_plan(graph)).peak.count() * 6 / 10);
  const auto count = [&](std::int64_t price) {
    int fetches = 0, items = 0;
    for (const Item& item : joint_choice(graph, budget, FetchPrices(graph.num_values(), price))) {
      fetches += !item.op;
      ++items;
    }
    return std::pair(fetches, items - fetches - narrow<int>(std::ssize(graph.ops())));
  };
  const auto [cheap_fetches, cheap_reruns] = count(1);
  EXPECT_GT(cheap_fetches, 2);
  EXPECT_EQ(cheap_reruns, 0);
  const auto [dear_fetches, dear_reruns] = count(1000);
  EXPECT_EQ(dear_fetches, 0);
  EXPECT_GT(dear_reruns, 2);
  EXPECT_EQ(count(kMaxCount), count(1000));
}

TEST(Offload, JointChoicesAreScriptsOfValidPlans) {
  Random random(8);
  int fetches = 0, reruns = 0;
  for (int i = 0; i < 300; ++i) {
    Graph graph = testing::random_graph(random, {.min_ops = 4, .max_ops = 12, .max_values = 14});
    graph.time_unit = "us";
    const Host host{.out = kBytesPerUs, .in = kBytesPerUs, .budget = std::nullopt};
    const Bytes budget(simulate(graph, keep_all_plan(graph)).peak.count() * 2 / 3);
    FetchPrices prices(graph.num_values(), kMaxCount);
    for (ValueId v : graph.values()) {
      if (!graph.is_graph_input(v) && graph.copyable[v]) prices[v] = 1 + random.below(10);
    }
    const Script script = joint_choice(graph, budget, prices);
    offload::Timetable timetable(graph, budget, host);
    timetable.evaluate(script);
    const auto violation = validate(graph, timetable.plan(), OrderMode::kFixed, std::nullopt, &host);
    ASSERT_FALSE(violation) << violation->message << '\n' << format_graph(graph);
    for (const Item& item : script) fetches += !item.op;
    reruns += narrow<int>(std::ssize(timetable.plan().steps) - std::ssize(graph.ops()));
  }
  EXPECT_GT(fetches, 100);
  EXPECT_GT(reruns, 20);
}

TEST(Offload, PricesOfAHostOutOfReachAddUpToWhatAGraphMayHold) {
  Graph graph = testing::training_chain(200, std::int64_t{1} << 50, 10);
  graph.time_unit = "us";
  const Host host{.out = 1, .in = 1, .budget = std::nullopt};
  Wide sum = 0;
  for (std::int64_t price : offload::ChannelPrices(graph, host).fetch_prices()) {
    if (price < kMaxCount) sum += price;
  }
  EXPECT_GT(sum, Wide(1) << 50);
  EXPECT_LT(sum, Wide(1) << 57);
}

TEST(Offload, PricesRiseWhereStepsWaitForCopiesAndFallElsewhere) {
  Graph graph = testing::training_chain(12, 1000, 10);
  graph.time_unit = "us";
  const Host host{.out = kBytesPerUs, .in = kBytesPerUs, .budget = std::nullopt};
  offload::ChannelPrices prices(graph, host);
  ASSERT_TRUE(prices.any());
  const FetchPrices before = prices.fetch_prices();
  prices.learn({{Way::kOut, OpId(0), OpId(3), 50, 100}}, 0.5);
  const FetchPrices after = prices.fetch_prices();
  int dearer = 0, cheaper = 0;
  for (ValueId v : graph.values()) {
    if (before[v] == kMaxCount) continue;
    const bool is_early = graph.producer[v] <= OpId(3);
    EXPECT_TRUE(is_early ? after[v] > before[v] : after[v] < before[v]) << v.index();
    ++(is_early ? dearer : cheaper);
  }
  EXPECT_GT(dearer, 2);
  EXPECT_GT(cheaper, 5);
  Random random(1);
  for (int i = 0; i < 20; ++i) prices.shake(random);
  EXPECT_NE(prices.fetch_prices(), after);
}

// Several moments bind here, and the channels too: 3.05 % before the choice was joint.
TEST(Offload, ComesNearTheBoundWhereSeveralMomentsBind) {
  const Graph graph = testing::training_step("unet", {.batch = 32});
  const Host host{.out = 25'000'000'000, .in = 25'000'000'000, .budget = std::nullopt};
  const Bytes budget(simulate(graph, keep_all_plan(graph)).peak.count() * 3 / 10);
  const PlanResult result = planned(problem_of(graph, budget, host), 500'000);
  ASSERT_TRUE(result.plan);
  EXPECT_LE(overhead(graph, result.cost.duration), 0.022);
}

TEST(Offload, AScriptComesBackFromTheGraphOfItsFetches) {
  Graph graph = testing::training_chain(8, 1000, 10);
  graph.time_unit = "us";
  const Host host{.out = kBytesPerUs, .in = kBytesPerUs, .budget = std::nullopt};
  int fetches = 0;
  see_scripts(graph, 9, 60, [&](const Script& script) {
    const auto fetched = offload::fetched_values(graph, script);
    const offload::FetchGraph around(graph, fetched, host, 0.1);
    const Plan plan = around.plan_of(script);
    ASSERT_FALSE(validate(around.graph(), plan, OrderMode::kFixed));
    const Script back = without_unread(graph, around.script_of(plan));
    // Recomputed values that may be fetched are fetched at once: the same steps and no fewer fetches.
    std::vector<OpId> ops, back_ops;
    for (const Item& item : script) {
      if (item.op) ops.push_back(item.op);
      fetches += !item.op;
    }
    for (const Item& item : back) {
      if (item.op) back_ops.push_back(item.op);
    }
    ASSERT_LE(back_ops.size(), ops.size());
  });
  EXPECT_GT(fetches, 10);
}

TEST(Offload, WhatIsWorthCopyingFitsTheChannelsAndIsDearestToMakeAgain) {
  Graph graph = testing::training_chain(16, 1000, 10);
  graph.time_unit = "us";
  const OpId middle(graph.ops().size() / 2);
  const auto count = [&](std::int64_t rate) {
    const auto chosen = offload::worth_copying(graph, middle, {rate, rate, 0, std::nullopt, false}, 1);
    return std::ranges::count(chosen.raw(), true);
  };
  EXPECT_EQ(count(1), 0);
  EXPECT_GT(count(50 * kBytesPerUs), 0);
  EXPECT_GT(count(1000 * kBytesPerUs), count(50 * kBytesPerUs));
}

TEST(Offload, HasAPlanForALargeGraphFromLittleWork) {
  Graph graph = testing::training_chain(2000, 1000, 10);
  graph.time_unit = "us";
  const Bytes budget(simulate(graph, keep_all_plan(graph)).peak.count() / 2);
  const Host host{.out = 120 * kBytesPerUs, .in = 120 * kBytesPerUs, .budget = std::nullopt};
  const PlanResult result = planned(problem_of(graph, budget, host), 400'000);
  ASSERT_TRUE(has_plan(result));
  EXPECT_LT(overhead(graph, result.cost.duration), 0.01);
}

PlanResult planned_by(const char* planner, const Problem& problem, std::int64_t work,
                      const PlanOptions& options = {}) {
  Limits limits;
  limits.set_work(work);
  return make_plan(problem, planner, options, limits);
}

TEST(Offload, IsNeverWorseThanOffloadAloneOrOffloadOfAll) {
  Random random(21);
  int only_fits = 0, all_fits = 0, faster = 0;
  for (int i = 0; i < 40; ++i) {
    Graph graph = testing::random_graph(random, {.min_ops = 6, .max_ops = 12, .max_values = 12});
    graph.time_unit = "us";
    for (OpId op : graph.ops()) {
      graph.phase[op] = op.index() * 2 < graph.ops().size() ? Phase::kForward : Phase::kBackward;
    }
    const Host host{.out = kBytesPerUs * (1 + random.below(20)),
                    .in = kBytesPerUs * (1 + random.below(20)),
                    .budget = std::nullopt};
    const PlanOptions every{.set = {{"least_bytes", "0"}}};
    const PlanResult all = planned_by("offload_all", problem_of(graph, kNoBudget, host), 1, every);
    const Bytes peak = simulate(graph, keep_all_plan(graph)).peak;
    for (const Bytes budget : {Bytes(peak.count() * 4 / 5), Bytes(peak.count() * 9 / 10), all.cost.peak}) {
      const Problem problem = problem_of(graph, budget, host);
      const PlanResult joint = planned(problem, 20'000);
      const PlanResult only = planned_by("offload_only", problem, 20'000);
      if (has_plan(only)) {
        ++only_fits;
        EXPECT_EQ(recomputed_ops(graph, *only.plan), 0);
        ASSERT_TRUE(has_plan(joint));
        EXPECT_LE(joint.cost.duration, only.cost.duration);
        faster += joint.cost.duration < only.cost.duration;
      }
      if (all.cost.peak <= budget) {
        ++all_fits;
        ASSERT_TRUE(has_plan(joint));
        EXPECT_LE(joint.cost.duration, all.cost.duration);
      }
    }
  }
  EXPECT_GT(only_fits, 20);
  EXPECT_GT(all_fits, 20);
  EXPECT_GT(faster, 0);
}

TEST(Offload, OfAllCopiesWhatTheBackwardPassReadsOneBlockAhead) {
  GraphBuilder builder("blocks", "us");
  constexpr std::int64_t kLayers = 6;
  std::vector<std::int64_t> made;
  std::vector<std::string> modules;
  for (std::int64_t i = 0; i < kLayers; ++i) modules.push_back("layers." + std::to_string(i) + ".linear");
  for (std::int64_t i = 0; i < kLayers; ++i) {
    made.push_back(builder.add_value(Bytes(2000)));
    const std::vector<std::int64_t> inputs(i > 0 ? 1 : 0, i > 0 ? made[at(i - 1)] : 0);
    builder.add_op({.name = "f",
                    .module = modules[at(i)],
                    .duration = Duration(1),
                    .phase = Phase::kForward,
                    .inputs = inputs,
                    .outputs = std::span(&made.back(), 1)});
  }
  std::int64_t gradient = -1;
  for (std::int64_t i = kLayers; i-- > 0;) {
    const std::int64_t next = builder.add_value(Bytes(1));
    std::vector<std::int64_t> inputs{made[at(i)]};
    if (gradient >= 0) inputs.push_back(gradient);
    builder.add_op({.name = "b",
                    .module = modules[at(i)],
                    .duration = Duration(1),
                    .phase = Phase::kBackward,
                    .inputs = inputs,
                    .outputs = std::span(&next, 1)});
    gradient = next;
  }
  const Graph graph = builder.build();
  const Host host{.out = 2000 * kBytesPerUs, .in = 2000 * kBytesPerUs, .budget = std::nullopt};
  const PlanResult result = planned_by("offload_all", problem_of(graph, kNoBudget, host), 1);
  // Value 0 is read last by op 1, and the blocks of layer 5 are one: steps 5 and 6.
  const Copy out{ValueId(0), Way::kOut, StepId(1), StepId(3)},
      in{ValueId(0), Way::kIn, StepId(10), StepId(11)};
  EXPECT_EQ(result.plan->copies.front(), out);
  EXPECT_EQ(result.plan->copies.back(), in);
  EXPECT_LT(result.cost.peak, simulate(graph, keep_all_plan(graph)).peak);
  const PlanResult none =
      planned_by("offload_all", problem_of(graph, kNoBudget, host), 1, {.set = {{"least_bytes", "2001"}}});
  EXPECT_TRUE(none.plan->copies.empty());
}

TEST(Offload, PlannersForComparisonSayThatTheyNeedAHost) {
  const Graph graph = testing::training_chain(3);
  for (const char* name : {"offload_only", "offload_all"}) {
    try {
      planned_by(name, {&graph, Bytes(1000)}, 1);
      ADD_FAILURE() << name;
    } catch (const UsageError& error) {
      EXPECT_NE(std::string(error.what()).find("it needs a host"), std::string::npos) << error.what();
    }
  }
}

TEST(Offload, PlansOfTheSameSeedAndWorkAreTheSame) {
  Graph graph = testing::training_chain(16, 1000, 10);
  graph.time_unit = "us";
  const Problem problem = problem_of(
      graph, Bytes(9000), {.out = 50 * kBytesPerUs, .in = 50 * kBytesPerUs, .budget = std::nullopt});
  const PlanResult first = planned(problem, 2000), second = planned(problem, 2000);
  ASSERT_TRUE(has_plan(first));
  EXPECT_EQ(first.plan, second.plan);
  EXPECT_EQ(first.duration_bound.duration, second.duration_bound.duration);
}

TEST(Offload, CopiesWhereTheLinkIsFastAndRecomputesWhereItIsNot) {
  Graph graph = testing::training_chain(16, 1000, 10);
  graph.time_unit = "us";
  const Bytes budget(9000);
  const auto at = [&](std::int64_t rate) {
    return planned(problem_of(graph, budget, {.out = rate, .in = rate, .budget = std::nullopt}), 5000);
  };
  const PlanResult fast = at(1000 * kBytesPerUs), slow = at(1);
  EXPECT_EQ(fast.status, Status::kOptimal);
  EXPECT_EQ(fast.cost.duration, graph.base_duration);
  EXPECT_GT(fast.cost.traffic.out, Bytes());
  ASSERT_TRUE(has_plan(slow));
  EXPECT_TRUE(slow.plan->copies.empty());
  Problem without{.graph = &graph, .budget = budget};
  EXPECT_LE(fast.cost.duration, planned(without, 5000).cost.duration);
}

TEST(Offload, CopiesNothingThatTheGraphForbids) {
  Graph graph = testing::training_chain(16, 1000, 10);
  graph.time_unit = "us";
  Random random(5);
  for (ValueId v : graph.values()) graph.copyable[v] = random.chance(0.5);
  const Host host{.out = 1000 * kBytesPerUs, .in = 1000 * kBytesPerUs, .budget = std::nullopt};
  const PlanResult result = planned(problem_of(graph, Bytes(12000), host), 5000);
  ASSERT_TRUE(has_plan(result));
  EXPECT_FALSE(result.plan->copies.empty());
  for (const Copy& copy : result.plan->copies) EXPECT_TRUE(graph.copyable[copy.value]) << copy.value.index();
}

TEST(Offload, KeepsWithinTheBudgetOfTheHost) {
  Graph graph = testing::training_chain(16, 1000, 10);
  graph.time_unit = "us";
  Host host{.out = 1000 * kBytesPerUs, .in = 1000 * kBytesPerUs, .budget = Bytes(3000)};
  const PlanResult result = planned(problem_of(graph, Bytes(12000), host), 5000);
  ASSERT_TRUE(has_plan(result));
  EXPECT_LE(result.cost.traffic.host_peak, Bytes(3000));
}

TEST(Offload, PutsFetchesInThePlaceOfRerunsWhereTheLinkIsSlow) {
  // Eight points with recomputation alone; the retention around what is fetched is off by a point.
  const Graph graph = testing::training_step("gpt", {.batch = 8, .depth = 12});
  const Bytes budget(simulate(graph, keep_all_plan(graph)).peak.count() * 3 / 5);
  const Host host{.out = 6'000'000'000, .in = 6'000'000'000, .budget = std::nullopt};
  const PlanResult result = planned(problem_of(graph, budget, host), 300'000);
  ASSERT_TRUE(has_plan(result));
  EXPECT_FALSE(result.plan->copies.empty());
  const double above =
      overhead(graph, result.cost.duration) - overhead(graph, result.duration_bound.duration);
  EXPECT_GE(above, 0);
  EXPECT_LT(above, 0.005);
}

TEST(Offload, BelowTheFloorOfTheOpsIsInfeasibleAndNothingElseIs) {
  Graph graph = testing::training_chain(6, 1000, 10);
  graph.time_unit = "us";
  const Host host{.out = kBytesPerUs, .in = kBytesPerUs, .budget = std::nullopt};
  const PlanResult result = planned(problem_of(graph, Bytes(1999), host), 1000);
  EXPECT_EQ(result.status, Status::kInfeasible);
  EXPECT_EQ(result.peak_bound.argument, "floor");
}

}  // namespace
}  // namespace remat
