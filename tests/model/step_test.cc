#include "model/step.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "helpers/graphs.h"
#include "helpers/oracle.h"
#include "model/op_copy.h"
#include "remat/keep_all.h"
#include "remat/random.h"

namespace remat {
namespace {

// The simulator does not use the model, so that each is a check of the other.
TEST(StepRule, LivesReusesAndExtrasAddUpToTheMemoryOfTheSimulator) {
  Random random(11);
  std::int64_t reused = 0, held = 0;
  for (int round = 0; round < 300; ++round) {
    const Graph g = testing::random_graph(random, {.max_ops = 20, .max_values = 40});
    const Plan plan = testing::random_plan(g, random, 8);
    IndexVector<StepId, Bytes> memory;
    simulate(g, plan, memory);
    const IndexVector<StepId, Bytes> extra = extra_bytes(g, plan);
    IndexVector<StepId, Bytes> summed = extra;
    for (Bytes& bytes : summed) bytes += g.resident;
    for (const InstanceLife& life : instance_lives(g, plan)) {
      for (StepId s = life.first; s < life.end; ++s) summed[s] += g.bytes[life.value];
      const StepId last = life.end.prev();
      const OpId reader = plan.steps[last];
      const auto inputs = g.inputs[reader];
      const bool is_read = last > life.first && std::binary_search(inputs.begin(), inputs.end(), life.value);
      const bool stays = g.kept[life.value] && life.end.index() == std::ssize(plan.steps);
      if (!is_read || stays) continue;
      summed[last] -= reuse_of(g, reader, life.value);
      reused += reuse_of(g, reader, life.value) > Bytes();
    }
    ASSERT_EQ(summed, memory) << "round " << round;
    for (StepId s : plan.steps.ids()) {
      const Bytes states = extra[s] - momentary(g, plan.steps[s]);
      ASSERT_LE(states, room_for_rerun_states(g));
      held += states > Bytes();
    }
    for (OpId op : g.ops()) ASSERT_LE(need_of(g, op), keep_all_peak(g)) << "round " << round;
  }
  EXPECT_GT(reused, 100);
  EXPECT_GT(held, 100);
}

TEST(StepRule, WhatAValueTakesBesideTheNeedOfAnOp) {
  // Op 1 reads values 0 and 1 and writes value 2 over value 0.
  const Graph g = testing::make_graph({}, {{{}, {5, 2}}, {{0, 1}, {3}, 1, 7}, {{2}, {1}}}, {});
  EXPECT_EQ(need_of(g, OpId(1)), Bytes(5 + 2 + 3 + 7));
  EXPECT_EQ(bytes_beside(g, OpId(1), ValueId(0)), Bytes());
  EXPECT_EQ(bytes_beside(g, OpId(2), ValueId(0)), Bytes(5));
  EXPECT_FALSE(has_reuses(g));
}

TEST(OpCopy, IsTheOpUnderOtherIds) {
  Random random(5);
  for (int round = 0; round < 100; ++round) {
    const Graph g = testing::random_graph(random, {.max_ops = 12, .max_values = 24});
    // Values in the opposite sequence.
    const std::int64_t last = g.values().size() - 1;
    const auto other = [&](ValueId v) { return last - v.index(); };
    GraphBuilder builder;
    for (std::int64_t i = last; i >= 0; --i) builder.add_value(g.bytes[ValueId(i)]);
    for (ValueId v : g.graph_inputs) builder.add_input(other(v));
    for (ValueId v : g.graph_outputs) builder.add_output(other(v));
    for (OpId op : g.ops()) {
      const OpCopy copy(g, op, other);
      builder.add_op(copy.spec());
    }
    const Graph made = builder.build();
    IndexVector<StepId, Bytes> memory, of_copy;
    // `after` is not copied, and no step of this plan needs it.
    simulate(g, keep_all_plan(g), memory);
    simulate(made, keep_all_plan(made), of_copy);
    ASSERT_EQ(memory, of_copy) << "round " << round;
    ASSERT_EQ(made.recomputable, g.recomputable);
    ASSERT_EQ(made.generator_state, g.generator_state);
    ASSERT_EQ(made.duration, g.duration);
  }
}

TEST(OpCopy, AnOutputThatIsMadeElsewhereStillReusesItsInput) {
  GraphBuilder builder;
  const std::int64_t read = builder.add_value(Bytes(8)), made = builder.add_value(Bytes(5));
  const std::array<std::int64_t, 1> first{read}, second{made};
  const std::array<std::array<std::int64_t, 2>, 1> over{{{read, made}}};
  builder.add_op({.name = {}, .outputs = first});
  builder.add_op({.name = {}, .workspace = Bytes(1), .inputs = first, .outputs = second, .over = over});
  const Graph g = builder.build();
  OpCopy copy(g, OpId(1), [](ValueId v) { return std::int64_t{v.index()}; });
  copy.add_momentary(Bytes(5));
  EXPECT_EQ(copy.spec().workspace, Bytes(6));
  EXPECT_EQ(copy.spec().over.size(), 1U);
  copy.reuse_elsewhere(made);
  EXPECT_EQ(copy.spec().workspace, Bytes(1));
  EXPECT_TRUE(copy.spec().over.empty());
}

}  // namespace
}  // namespace remat
