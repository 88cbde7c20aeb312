#include "exact/unrolled.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>

#include "helpers/graphs.h"

namespace remat {
namespace {

/// The same graph, with everything checked.
Graph checked(const Graph& g) {
  GraphBuilder builder(g.name, g.time_unit);
  for (Bytes bytes : g.bytes) builder.add_value(bytes);
  for (ValueId v : g.graph_inputs) builder.add_input(v.index());
  for (ValueId v : g.graph_outputs) builder.add_output(v.index());
  for (OpId op : g.ops()) {
    const auto indices = [](std::span<const ValueId> row) {
      std::vector<std::int64_t> all;
      for (ValueId v : row) all.push_back(v.index());
      return all;
    };
    const auto inputs = indices(g.inputs[op]), outputs = indices(g.outputs[op]);
    std::vector<std::array<std::int64_t, 2>> over;
    for (const Over& pair : g.over[op]) over.push_back({pair.input.index(), pair.output.index()});
    builder.add_op({.name = {},
                    .duration = g.duration[op],
                    .workspace = g.workspace[op],
                    .recomputable = g.recomputable[op],
                    .inputs = inputs,
                    .outputs = outputs,
                    .over = over});
  }
  return builder.build();
}

TEST(Unrolled, IsAGraphThatABuilderMakesToo) {
  Random random(8);
  for (int round = 0; round < 300; ++round) {
    const Graph graph = testing::random_graph(random);
    const Script script = script_of(testing::random_plan(graph, random, 6));
    const std::optional<Unrolled> all = unrolled(graph, script);
    ASSERT_TRUE(all);
    EXPECT_TRUE(all->graph == checked(all->graph));
    EXPECT_EQ(all->graph.ops().size(), std::ssize(script));
  }
}

TEST(Unrolled, TakesTheMemoryOfThePlan) {
  Random random(9);
  for (int round = 0; round < 300; ++round) {
    const Graph graph = testing::random_graph(random);
    const Plan plan = testing::random_plan(graph, random, 6);
    const std::optional<Unrolled> all = unrolled(graph, script_of(plan));
    ASSERT_TRUE(all);
    EXPECT_EQ(testing::memory_of(all->graph, keep_all_plan(all->graph)), testing::memory_of(graph, plan));
  }
}

}  // namespace
}  // namespace remat
