#include <gtest/gtest.h>

#include "helpers/graphs.h"
#include "helpers/oracle.h"
#include "model/step.h"
#include "remat/bounds.h"
#include "remat/plan.h"

namespace remat {
namespace {

using testing::make_graph;
using testing::memory_of;
using testing::plan_of;
using testing::RandomShape;

// x (input, 8) -> a (16) -> b (4) -> c (2, kept); c reads a and b.
Graph tail_graph() { return make_graph({8}, {{{0}, {16}, 3}, {{1}, {4}, 5}, {{1, 2}, {2}, 7}}, {3}); }

/// The definition, word by word: for each step, every instance with birth <= step <= last read.
Bytes peak_by_definition(const Graph& g, const Plan& plan) {
  struct Instance {
    ValueId value;
    std::int64_t birth, last;
    bool is_kept = false;
  };
  std::vector<Instance> instances;
  const auto n = static_cast<std::int64_t>(plan.steps.size());
  const auto newest = [&](ValueId v) -> Instance* {
    for (auto it = instances.rbegin(); it != instances.rend(); ++it) {
      if (it->value == v) return &*it;
    }
    return nullptr;
  };
  for (std::int64_t s = 0; s < n; ++s) {
    const OpId op = plan.steps[StepId(s)];
    for (ValueId v : g.inputs[op]) {
      if (Instance* one = newest(v)) one->last = s;
    }
    for (ValueId v : g.outputs[op]) instances.push_back({v, s, s, false});
  }
  for (ValueId v : g.graph_outputs) {
    if (Instance* one = newest(v)) one->last = n - 1, one->is_kept = true;
  }
  Bytes peak;
  for (std::int64_t s = 0; s < n; ++s) {
    Bytes memory = g.resident + g.workspace[plan.steps[StepId(s)]];
    for (const Instance& one : instances) {
      if (one.birth <= s && s <= one.last) memory += g.bytes[one.value];
      if (one.birth == s || s != one.last || one.is_kept) continue;
      for (const Over& pair : g.over[plan.steps[StepId(s)]]) {
        if (pair.input == one.value) memory -= std::min(g.bytes[pair.input], g.bytes[pair.output]);
      }
    }
    for (OpId op : g.ops()) {
      const auto is_op = [&](OpId other) { return other == op; };
      const auto begin = plan.steps.begin(), now = begin + s + 1;
      const bool before = std::any_of(begin, now - 1, is_op), at = plan.steps[StepId(s)] == op;
      const bool after = std::any_of(now, plan.steps.end(), is_op);
      if ((before || at) && (after || at) && (before || after)) memory += g.generator_state[op];
      if (before && at) memory += g.generator_state[op];
    }
    peak = std::max(peak, memory);
  }
  return peak;
}

TEST(Simulate, CountsResidentInputsLiveInstancesAndOutputs) {
  const Graph g = tail_graph();
  IndexVector<StepId, Bytes> memory;
  const Simulation cost = simulate(g, keep_all_plan(g), memory);
  EXPECT_EQ(memory.raw(), (std::vector<Bytes>{Bytes(24), Bytes(28), Bytes(30)}));
  EXPECT_EQ(cost.peak, Bytes(30));
  EXPECT_EQ(cost.peak_step, StepId(2));
  EXPECT_EQ(cost.duration, Duration(15));
}

// r makes 4 bytes by random numbers, from a state of 10 bytes; it runs again before its second reader.
TEST(Simulate, AGeneratorStateIsHeldFromTheFirstRunToTheLast) {
  const Graph g = make_graph({},
                             {{.inputs = {}, .output_bytes = {4}, .generator_state = 10},
                              {.inputs = {0}, .output_bytes = {1}},
                              {.inputs = {1}, .output_bytes = {1}},
                              {.inputs = {0, 2}, .output_bytes = {2}}},
                             {3});
  EXPECT_EQ(memory_of(g, keep_all_plan(g)), (std::vector<std::int64_t>{4, 5, 6, 7})) << "run once: no state";
  EXPECT_EQ(memory_of(g, plan_of({0, 1, 2, 0, 3})), (std::vector<std::int64_t>{14, 15, 12, 25, 7}));
  EXPECT_EQ(memory_of(g, plan_of({0, 1, 0, 2, 0, 3})), (std::vector<std::int64_t>{14, 15, 25, 12, 25, 7}));
  EXPECT_EQ(room_for_rerun_states(g), Bytes(20));
  EXPECT_NE(graph_hash(g), graph_hash(make_graph({},
                                                 {{.inputs = {}, .output_bytes = {4}},
                                                  {.inputs = {0}, .output_bytes = {1}},
                                                  {.inputs = {1}, .output_bytes = {1}},
                                                  {.inputs = {0, 2}, .output_bytes = {2}}},
                                                 {3})));
}

TEST(Simulate, AValueIsFreedBetweenItsLastReadAndItsRecomputation) {
  const Graph g = tail_graph();
  IndexVector<StepId, Bytes> memory;
  const Simulation cost = simulate(g, plan_of({0, 1, 0, 2}), memory);
  EXPECT_EQ(memory.raw(), (std::vector<Bytes>{Bytes(24), Bytes(28), Bytes(28), Bytes(30)}));
  EXPECT_EQ(cost.duration, Duration(18));
}

TEST(Simulate, AnInstanceThatNobodyReadsLivesDuringItsOwnStepOnly) {
  const Graph g = make_graph({}, {{{}, {5}}, {{}, {3}}}, {});
  IndexVector<StepId, Bytes> memory;
  simulate(g, keep_all_plan(g), memory);
  EXPECT_EQ(memory.raw(), (std::vector<Bytes>{Bytes(5), Bytes(3)}));
}

TEST(Simulate, OnlyTheNewestInstanceOfAKeptOutputLivesToTheEnd) {
  const Graph g = make_graph({}, {{{}, {5}}, {{0}, {1}}}, {0});
  IndexVector<StepId, Bytes> memory;
  simulate(g, plan_of({0, 1, 0}), memory);
  EXPECT_EQ(memory.raw(), (std::vector<Bytes>{Bytes(5), Bytes(6), Bytes(5)}));
}

// The example of docs/model.md: a makes u; b reads u and writes w over it; c reads w; d reads u and x.
TEST(Simulate, AnOutputTakesThePlaceOfAnInputThatIsNotReadAgain) {
  const Graph g = make_graph({},
                             {{.inputs = {}, .output_bytes = {4}},
                              {.inputs = {0}, .output_bytes = {4}, .over = {{0, 1}}},
                              {.inputs = {1}, .output_bytes = {1}},
                              {.inputs = {0, 2}, .output_bytes = {1}}},
                             {3});
  EXPECT_EQ(memory_of(g, plan_of({0, 1, 2, 3})), (std::vector<std::int64_t>{4, 8, 9, 6}));
  EXPECT_EQ(memory_of(g, plan_of({0, 1, 2, 0, 3})), (std::vector<std::int64_t>{4, 4, 5, 5, 6}));
  const Overwrite expected{StepId(1), {ValueId(0), ValueId(1)}};
  EXPECT_EQ(overwrites(g, plan_of({0, 1, 2, 0, 3})), std::vector{expected});
  EXPECT_TRUE(overwrites(g, plan_of({0, 1, 2, 3})).empty());
}

TEST(Simulate, AStepCountsTheLargerOfAnInputAndTheOutputInItsPlace) {
  const auto peak = [](std::int64_t input, std::int64_t output) {
    return memory_of(make_graph({},
                                {{.inputs = {}, .output_bytes = {input}},
                                 {.inputs = {0}, .output_bytes = {output}, .workspace = 1, .over = {{0, 1}}},
                                 {.inputs = {1}, .output_bytes = {}}},
                                {}),
                     plan_of({0, 1, 2}));
  };
  EXPECT_EQ(peak(5, 3), (std::vector<std::int64_t>{5, 6, 3}));
  EXPECT_EQ(peak(3, 5), (std::vector<std::int64_t>{3, 6, 5}));
  EXPECT_EQ(peak(0, 5), (std::vector<std::int64_t>{0, 6, 5}));
  EXPECT_EQ(peak(5, 0), (std::vector<std::int64_t>{5, 6, 0}));
}

TEST(Simulate, AnInstanceThatIsKeptIsNotWrittenOver) {
  const Graph g = make_graph(
      {}, {{.inputs = {}, .output_bytes = {4}}, {.inputs = {0}, .output_bytes = {4}, .over = {{0, 1}}}}, {0});
  EXPECT_EQ(memory_of(g, plan_of({0, 1})), (std::vector<std::int64_t>{4, 8}));
  // Made again for the end, the first instance is free.
  EXPECT_EQ(memory_of(g, plan_of({0, 1, 0})), (std::vector<std::int64_t>{4, 4, 4}));
}

TEST(Simulate, EveryPairIsLookedAtByItself) {
  // b reads u and v and writes w over u, x over v; c reads v again.
  const Graph g = make_graph({},
                             {{.inputs = {}, .output_bytes = {4, 3}},
                              {.inputs = {0, 1}, .output_bytes = {4, 2}, .over = {{1, 3}, {0, 2}}},
                              {.inputs = {1, 2, 3}, .output_bytes = {}}},
                             {});
  EXPECT_EQ(memory_of(g, plan_of({0, 1, 2})), (std::vector<std::int64_t>{7, 9, 9}));
  EXPECT_EQ(memory_of(g, plan_of({0, 1, 0, 2})), (std::vector<std::int64_t>{7, 7, 13, 9}));
}

TEST(Simulate, AgreesWithTheDefinitionOnRandomPlans) {
  Random random(1);
  RandomShape shape{.min_ops = 1, .max_ops = 25, .max_values = 60};
  for (int round = 0; round < 2000; ++round) {
    const Graph g = testing::random_graph(random, shape);
    const Plan plan = testing::random_plan(g, random, static_cast<int>(random.below(20)));
    ASSERT_FALSE(validate(g, plan, OrderMode::kFixed));
    ASSERT_EQ(simulate(g, plan).peak, peak_by_definition(g, plan)) << "round " << round;
  }
}

TEST(Simulate, LivesAddUpToTheMemoryOfEachStep) {
  Random random(2);
  for (int round = 0; round < 300; ++round) {
    const Graph g = testing::random_graph(random, {.max_ops = 20, .max_values = 40});
    const Plan plan = testing::random_plan(g, random, 8);
    IndexVector<StepId, Bytes> memory;
    simulate(g, plan, memory);
    IndexVector<StepId, Bytes> summed(plan.steps.size());
    for (StepId s : plan.steps.ids()) summed[s] = g.resident + g.workspace[plan.steps[s]];
    for (const InstanceLife& life : instance_lives(g, plan)) {
      for (StepId s = life.first; s < life.end; ++s) summed[s] += g.bytes[life.value];
    }
    for (const Overwrite& one : overwrites(g, plan)) summed[one.step] -= g.overlap(one.pair);
    const IndexVector<StepId, Bytes> states = saved_generator_states(g, plan);
    ASSERT_EQ(states.empty(), !g.has_generator_states());
    for (StepId s : states.ids()) {
      summed[s] += states[s];
      ASSERT_LE(states[s], room_for_rerun_states(g));
    }
    ASSERT_EQ(summed, memory) << "round " << round;
  }
}

struct BrokenPlan {
  Rule rule;
  std::vector<std::int64_t> steps;
  std::string message;
};

TEST(Validate, NamesTheFirstBrokenRuleWithStepAndNumbers) {
  const Graph g = make_graph({}, {{{}, {5}}, {{0}, {3}, 1, 0, false}, {{}, {1}, 1, 0, true, {1}}}, {});
  const std::vector<BrokenPlan> cases = {
      {Rule::kOpExists, {0, 7}, "rule op_exists: step 1: op index 7 is not one of the 3 ops"},
      {Rule::kOpExists, {-1}, "rule op_exists: step 0: op index -1 is not one of the 3 ops"},
      {Rule::kInputReady,
       {1, 0, 2},
       "rule input_ready: step 0: op 1 'op1' reads value 0, but its producer op 0 'op0' has not run"},
      {Rule::kAfter, {0, 2, 1}, "rule after: step 1: op 2 'op2' runs before op 1 'op1'"},
      {Rule::kRunsOnce,
       {0, 1, 1, 2},
       "rule runs_once: step 2: op 1 'op1' forbids recomputation and has run at step 1"},
      {Rule::kEveryOpRuns, {0, 1}, "rule every_op_runs: op 2 'op2' never runs"},
      {Rule::kBudget, {0, 1, 2}, "rule budget: step 1: memory 8 is over the budget 7"},
  };
  for (const BrokenPlan& one : cases) {
    const auto violation = validate(g, one.steps, OrderMode::kFixed, Bytes(7));
    ASSERT_TRUE(violation) << one.message;
    EXPECT_EQ(violation->rule, one.rule);
    EXPECT_EQ(violation->message, one.message);
  }
}

TEST(Validate, FixedOrderOnlyAllowsFirstRunsInTheGraphsOrder) {
  const Graph g = make_graph({}, {{{}, {5}}, {{}, {3}}}, {});
  const auto violation = validate(g, plan_of({1, 0}), OrderMode::kFixed);
  ASSERT_TRUE(violation);
  EXPECT_EQ(violation->message,
            "rule fixed_order: step 0: op 1 'op1' first runs before op 0 'op0', which first runs at step 1");
  EXPECT_FALSE(validate(g, plan_of({1, 0}), OrderMode::kFree));
}

TEST(FloorBound, IsNeverAboveTheSmallestPeakOfAnyPlan) {
  Random random(3);
  for (int round = 0; round < 400; ++round) {
    const Graph g = testing::random_graph(random, {.max_ops = 6, .max_values = 7});
    for (OrderMode order : {OrderMode::kFixed, OrderMode::kFree}) {
      const Bytes least = testing::oracle_min_peak(g, order);
      ASSERT_LE(floor_bound(g).peak, least) << "round " << round;
      ASSERT_LE(best_peak_bound(g, order).peak, least) << "round " << round;
    }
  }
}

}  // namespace
}  // namespace remat
