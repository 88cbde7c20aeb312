// Copies to a host and back: the worked example of docs/model.md, every rule, and what does not depend on
// time.
#include <gtest/gtest.h>

#include "helpers/graphs.h"
#include "helpers/hosts.h"
#include "remat/error.h"
#include "remat/plan.h"

namespace remat {
namespace {

using testing::host_of;
using testing::kBytesPerUs;
using testing::make_graph;
using testing::memory_of;

// docs/examples/host.json: a makes u (4 bytes), b reads u and makes w (2), c reads w and makes x (1), d reads
// u and x and makes y (1, kept). 2 us each.
Graph example() {
  Graph graph = make_graph({}, {{{}, {4}, 2}, {{0}, {2}, 2}, {{1}, {1}, 2}, {{0, 2}, {1}, 2}}, {3});
  graph.time_unit = "us";
  return graph;
}

Copy out(int value, int issue, int wait) { return {ValueId(value), Way::kOut, StepId(issue), StepId(wait)}; }
Copy in(int value, int issue, int wait) { return {ValueId(value), Way::kIn, StepId(issue), StepId(wait)}; }

Plan with_copies(const Graph& graph, std::vector<Copy> copies) {
  Plan plan = keep_all_plan(graph);
  plan.copies = std::move(copies);
  return plan;
}

std::string rule_of(const Graph& graph, const Plan& plan, const Host* host = nullptr) {
  const auto violation = validate(graph, plan, OrderMode::kFixed, std::nullopt, host);
  return violation ? std::string(to_string(violation->rule)) : "none";
}

TEST(Copies, FreeTheBytesFromTheWaitToTheIssueOfTheWayBack) {
  const Graph graph = example();
  EXPECT_EQ(memory_of(graph, keep_all_plan(graph)), (std::vector<std::int64_t>{4, 6, 7, 6}));
  EXPECT_EQ(memory_of(graph, with_copies(graph, {out(0, 0, 2), in(0, 3, 3)})),
            (std::vector<std::int64_t>{4, 6, 3, 6}));
  EXPECT_EQ(memory_of(graph, with_copies(graph, {out(0, 0, 2), in(0, 2, 3)})),
            (std::vector<std::int64_t>{4, 6, 7, 6}));
  // The wait comes after the last read: until then the bytes are held.
  EXPECT_EQ(memory_of(graph, with_copies(graph, {out(0, 0, 3), in(0, 3, 3)})),
            (std::vector<std::int64_t>{4, 6, 7, 6}));
}

TEST(Copies, TakeTheTimeOfTheWorkedExample) {
  const Graph graph = example();
  const Plan plan = with_copies(graph, {out(0, 0, 2), in(0, 3, 3)});
  const Host host = host_of(4);
  const Simulation cost = simulate(graph, plan, &host);
  EXPECT_EQ(cost.peak, Bytes(6));
  EXPECT_EQ(cost.duration, Duration(9));
  EXPECT_EQ(cost.traffic, (Traffic{.stalled = Duration(1),
                                   .out = Bytes(4),
                                   .in = Bytes(4),
                                   .busy_out = Duration(1),
                                   .busy_in = Duration(1),
                                   .host_peak = Bytes(4)}));
}

TEST(Copies, CostTimeOnASlowLinkAndNeverMemory) {
  const Graph graph = example();
  const Plan plan = with_copies(graph, {out(0, 0, 2), in(0, 3, 3)});
  // out 2..6, c waits until 6, in 8..12
  Host host = host_of(1);
  EXPECT_EQ(simulate(graph, plan, &host).duration, Duration(14));
  EXPECT_EQ(simulate(graph, plan, &host).traffic.stalled, Duration(6));
  EXPECT_EQ(simulate(graph, plan, &host).peak, Bytes(6));
  host.out = host.in = 1;
  EXPECT_EQ(simulate(graph, plan, &host).duration, Duration(8 + 2 * 4'000'000 - 2));
  EXPECT_EQ(simulate(graph, plan, &host).peak, Bytes(6));
  EXPECT_EQ(simulate(graph, plan).duration, Duration(8));
}

TEST(Copies, RoundLatencyAndTransferUpEachByItself) {
  const Graph graph = example();
  const Host host{.out = 3 * kBytesPerUs, .in = 3 * kBytesPerUs, .latency_ns = 1001, .budget = std::nullopt};
  // 2 us of latency, 4/3 us of transfer
  EXPECT_EQ(CopyClock(graph, host).time(Way::kOut, Bytes(4)), 4);
  EXPECT_EQ(CopyClock(graph, host).time(Way::kIn, Bytes(0)), 2);
}

// Two values of 6 bytes go out, and come back while the next ones go out.
Graph two_values() {
  Graph graph =
      make_graph({}, {{{}, {6}, 1}, {{}, {6}, 1}, {{}, {1}, 9}, {{0, 2}, {1}, 1}, {{1, 3}, {1}, 1}}, {4});
  graph.time_unit = "us";
  return graph;
}

TEST(Copies, GoThroughAChannelOneAfterTheOther) {
  const Graph graph = two_values();
  Host host = host_of(1);
  const Plan plan = with_copies(graph, {out(0, 0, 2), out(1, 1, 3), in(0, 2, 3), in(1, 3, 4)});
  // out of 0: 1..7, out of 1: 7..13. Step 2 waits for 7 and ends at 16. in of 0: 7..13; in of 1: from 16.
  Simulation cost = simulate(graph, plan, &host);
  EXPECT_EQ(cost.traffic.stalled, Duration(5 + (22 - 17)));
  EXPECT_EQ(cost.duration, Duration(23));
  // On one link: out 1..7, out 7..13, in of 0 13..19, in of 1 19..25.
  host.shared = true;
  cost = simulate(graph, plan, &host);
  EXPECT_EQ(cost.duration, Duration(26));
  EXPECT_EQ(cost.traffic.host_peak, Bytes(12));
}

TEST(Copies, AreInThePlanUntilTheLastHasEnded) {
  const Graph graph = example();
  const Host host = host_of(1);
  // w is read by c at step 2; nobody needs the copy, but the plan says that it ends.
  const Simulation cost = simulate(graph, with_copies(graph, {out(3, 3, 4), in(3, 4, 4)}), &host);
  EXPECT_EQ(cost.duration, Duration(10));
  EXPECT_EQ(cost.traffic.stalled, Duration(2));
}

TEST(Copies, EachRuleIsNamedWhereItIsBroken) {
  const Graph graph = example();
  const auto rule = [&](std::vector<Copy> copies) {
    return rule_of(graph, with_copies(graph, std::move(copies)));
  };
  EXPECT_EQ(rule({out(0, 0, 2), in(0, 3, 3)}), "none");
  EXPECT_EQ(rule({out(9, 0, 2)}), "copy_value");
  EXPECT_EQ(rule({out(0, 2, 2)}), "copy_steps");
  EXPECT_EQ(rule({out(0, 0, 5)}), "copy_steps");
  EXPECT_EQ(rule({out(0, 0, 2), in(0, 3, 2)}), "copy_steps");
  EXPECT_EQ(rule({out(1, 2, 3), out(0, 0, 2), in(0, 3, 3)}), "copy_order");
  EXPECT_EQ(rule({out(0, 0, 2), out(0, 1, 2)}), "copy_once");
  EXPECT_EQ(rule({in(0, 3, 3)}), "copy_back");
  EXPECT_EQ(rule({out(0, 0, 3), in(0, 2, 3)}), "copy_back");
  EXPECT_EQ(rule({out(1, 0, 2)}), "copy_source");
  EXPECT_EQ(rule({out(0, 0, 2)}), "on_device");
  EXPECT_EQ(rule({out(0, 0, 2), in(0, 3, 4)}), "waited_for");
  EXPECT_EQ(rule({out(3, 3, 4)}), "kept_on_device");
  EXPECT_EQ(rule({out(3, 3, 4), in(3, 4, 4)}), "none");
}

TEST(Copies, OfGraphInputsAreRefused) {
  Graph graph = make_graph({5}, {{{0}, {1}}, {{0}, {1}}}, {2});
  graph.time_unit = "s";
  const auto violation = validate(graph, with_copies(graph, {out(0, 0, 1)}), OrderMode::kFixed);
  ASSERT_TRUE(violation);
  EXPECT_EQ(
      violation->message,
      "rule copy_value: step 0: the copy out of value 0: it is an input of the graph, which no op makes");
}

TEST(Copies, OfValuesThatMayNotBeCopiedAreRefused) {
  Graph graph = make_graph({}, {{{}, {4}}, {{0}, {1}}}, {1});
  graph.copyable[ValueId(0)] = false;
  const auto violation = validate(graph, with_copies(graph, {out(0, 0, 2)}), OrderMode::kFixed);
  ASSERT_TRUE(violation);
  EXPECT_EQ(violation->message, "rule copy_value: step 0: the copy out of value 0: the graph forbids it");
}

TEST(Copies, KeepWithinTheBudgetOfTheHost) {
  const Graph graph = example();
  const Plan plan = with_copies(graph, {out(0, 0, 2), in(0, 3, 3)});
  Host host = host_of(1);
  host.budget = Bytes(4);
  EXPECT_EQ(rule_of(graph, plan, &host), "none");
  host.budget = Bytes(3);
  EXPECT_EQ(rule_of(graph, plan, &host), "host_budget");
}

TEST(Copies, LongerThanAPlanMayBeBreakTheRuleOfDuration) {
  Graph graph = example();
  graph.bytes[ValueId(0)] = Bytes(std::int64_t{1} << 61);
  graph.time_unit = "ns";
  const Host slow{.out = 1, .in = 1, .budget = std::nullopt};
  EXPECT_EQ(rule_of(graph, with_copies(graph, {out(0, 0, 2), in(0, 3, 3)}), &slow), "duration");
  EXPECT_EQ(simulate(graph, with_copies(graph, {out(0, 0, 2), in(0, 3, 3)}), &slow).duration, kTooLong);
}

TEST(Copies, AValueComputedAgainNeedsNoWayBack) {
  const Graph graph = example();
  Plan plan;
  for (int op : {0, 1, 2, 0, 3}) plan.steps.push_back(OpId(op));
  plan.copies = {out(0, 0, 2)};
  EXPECT_EQ(rule_of(graph, plan), "none");
  EXPECT_EQ(memory_of(graph, plan), (std::vector<std::int64_t>{4, 6, 3, 5, 6}));
}

TEST(Copies, OneOnTheHostComesBackAnyNumberOfTimes) {
  // u is read by ops 1, 3 and 5.
  Graph graph = make_graph({}, {{{}, {4}}, {{0}, {1}}, {{}, {4}}, {{0}, {1}}, {{}, {4}}, {{0}, {1}}}, {});
  const Plan plan = with_copies(graph, {out(0, 1, 2), in(0, 3, 3), in(0, 5, 5)});
  EXPECT_EQ(rule_of(graph, plan), "none");
  EXPECT_EQ(memory_of(graph, plan), (std::vector<std::int64_t>{4, 5, 4, 5, 4, 5}));
}

TEST(Copies, WhatIsCopiedOutIsNotWrittenOverAndWhatCameInIs) {
  // b may write w over u; c reads u again.
  Graph graph = make_graph({}, {{{}, {4}}, {{0}, {4}, 1, 0, true, {}, {{0, 1}}}, {{1}, {4}}}, {2});
  EXPECT_EQ(memory_of(graph, keep_all_plan(graph)), (std::vector<std::int64_t>{4, 4, 8}));
  EXPECT_EQ(memory_of(graph, with_copies(graph, {out(0, 0, 2)})), (std::vector<std::int64_t>{4, 8, 8}));
  // Here it is gone before b, and b reads what came in.
  EXPECT_EQ(memory_of(graph, with_copies(graph, {out(0, 0, 1), in(0, 1, 1)})),
            (std::vector<std::int64_t>{4, 4, 8}));
  EXPECT_EQ(overwrites(graph, with_copies(graph, {out(0, 0, 1), in(0, 1, 1)})).size(), 1u);
}

TEST(Copies, NeedAUnitOfTime) {
  Graph graph = example();
  EXPECT_NO_THROW(require_time_unit(graph));
  graph.time_unit = "cycles";
  EXPECT_EQ(units_per_second(graph), std::nullopt);
  EXPECT_THROW(require_time_unit(graph), InputError);
}

}  // namespace
}  // namespace remat
