#include "remat/graph.h"

#include <gtest/gtest.h>

#include "helpers/graphs.h"
#include "remat/error.h"

namespace remat {
namespace {

using testing::make_graph;

std::string refusal(const std::function<Graph()>& make) {
  try {
    make();
  } catch (const InputError& error) {
    return error.what();
  }
  return "accepted";
}

constexpr std::int64_t kHuge = kMaxCount - 1;

TEST(GraphBuilder, SortsRowsAndRemovesDuplicates) {
  const Graph g = make_graph({1, 2}, {{{1, 0, 1}, {3}}}, {2, 2});
  EXPECT_EQ(std::vector(g.inputs[OpId(0)].begin(), g.inputs[OpId(0)].end()),
            (std::vector{ValueId(0), ValueId(1)}));
  EXPECT_EQ(g.graph_outputs, std::vector{ValueId(2)});
  EXPECT_EQ(g.resident, Bytes(3));
}

TEST(GraphBuilder, KnowsProducersAndReaders) {
  const Graph g = make_graph({}, {{{}, {1, 2}}, {{0}, {1}}, {{0, 1, 2}, {}}}, {});
  EXPECT_EQ(g.producer[ValueId(1)], OpId(0));
  EXPECT_EQ(std::vector(g.readers[ValueId(0)].begin(), g.readers[ValueId(0)].end()),
            (std::vector{OpId(1), OpId(2)}));
  EXPECT_EQ(g.readers[ValueId(2)].size(), 1u);
  EXPECT_EQ(predecessors(g, OpId(2)), (std::vector{OpId(0), OpId(1)}));
}

TEST(GraphBuilder, RefusesBadInputWithPlaceAndNumbers) {
  EXPECT_EQ(refusal([] { return make_graph({}, {}, {}); }), "the graph has no ops");
  EXPECT_EQ(refusal([] { return make_graph({-4}, {{{}, {}}}, {}); }),
            "value 0: bytes -4 is outside [0, 4611686018427387904)");
  EXPECT_EQ(refusal([] { return make_graph({}, {{{}, {}, -1}}, {}); }),
            "op 0 'op0': duration -1 is outside [0, 4611686018427387904)");
  EXPECT_EQ(refusal([] { return make_graph({}, {{{}, {}, 1, kMaxCount}}, {}); }),
            "op 0 'op0': workspace 4611686018427387904 is outside [0, 4611686018427387904)");
  EXPECT_EQ(refusal([] { return make_graph({}, {{{9}, {1}}}, {}); }),
            "op 0 'op0': input 9 is not one of the 1 values");
  EXPECT_EQ(refusal([] { return make_graph({}, {{{}, {1}}}, {-1}); }),
            "graph output -1 is not one of the 1 values");
  EXPECT_EQ(refusal([] { return make_graph({}, {{{}, {1}, 1, 0, true, {3}}}, {}); }),
            "op 0 'op0': 'after' 3 is not one of the 1 ops");
  EXPECT_EQ(refusal([] { return make_graph({}, {{{1}, {1}}, {{0}, {1}}}, {}); }),
            "op 0 'op0' reads value 1, which is made by op 1 'op1', later in the order: the order is not "
            "topological or there is a cycle");
  EXPECT_EQ(refusal([] { return make_graph({}, {{{0}, {1}}}, {}); }),
            "op 0 'op0' reads value 0, which is made by op 0 'op0' itself");
  EXPECT_EQ(refusal([] { return make_graph({}, {{{}, {1}, 1, 0, true, {1}}, {{}, {1}}}, {}); }),
            "op 0 'op0': 'after' names op 1 'op1', which is not earlier in the order");
}

TEST(GraphBuilder, RefusesPairsThatAreNoneOfInputAndOutput) {
  // Value 0 is a graph input, 1 and 2 are made by op 0, 3 and 4 by op 1, which reads 0, 1 and 2.
  const auto with = [](std::vector<std::array<std::int64_t, 2>> over) {
    return make_graph({1},
                      {{.inputs = {}, .output_bytes = {1, 1}},
                       {.inputs = {0, 1, 2}, .output_bytes = {1, 1}, .over = over},
                       {.inputs = {}, .output_bytes = {1}}},
                      {});
  };
  EXPECT_EQ(refusal([&] { return with({{9, 3}}); }), "op 1 'op1': 'over' 9 is not one of the 6 values");
  EXPECT_EQ(refusal([&] { return with({{1, -1}}); }), "op 1 'op1': 'over' -1 is not one of the 6 values");
  EXPECT_EQ(refusal([&] { return with({{5, 3}}); }),
            "op 1 'op1': 'over' names value 5, which the op does not read");
  EXPECT_EQ(refusal([&] { return with({{0, 3}}); }),
            "op 1 'op1': 'over' names value 0, a graph input, which stays in memory");
  EXPECT_EQ(refusal([&] { return with({{1, 5}}); }),
            "op 1 'op1': 'over' names value 5, which the op does not make");
  EXPECT_EQ(refusal([&] { return with({{1, 3}, {1, 4}}); }), "op 1 'op1': 'over' names value 1 twice");
  EXPECT_EQ(refusal([&] { return with({{1, 3}, {2, 3}}); }), "op 1 'op1': 'over' names value 3 twice");
  const Graph g = with({{2, 3}, {1, 4}});
  const auto row = g.over[OpId(1)];
  EXPECT_EQ(std::vector(row.begin(), row.end()),
            (std::vector<Over>{{ValueId(1), ValueId(4)}, {ValueId(2), ValueId(3)}}));
}

TEST(GraphHash, KnowsValuesThatMayNotBeCopied) {
  const auto with = [](bool copyable) {
    GraphBuilder builder;
    builder.add_value(Bytes(4), "x", copyable);
    builder.add_op({.name = "a", .outputs = std::array<std::int64_t, 1>{0}});
    return graph_hash(builder.build());
  };
  EXPECT_NE(with(true), with(false));
}

TEST(GraphHash, KnowsOutputsOverInputs) {
  const auto with = [](std::vector<std::array<std::int64_t, 2>> over) {
    return make_graph(
        {}, {{.inputs = {}, .output_bytes = {1}}, {.inputs = {0}, .output_bytes = {1, 1}, .over = over}}, {});
  };
  EXPECT_EQ(graph_hash(with({})), "0bc5580072f835ec");
  EXPECT_NE(graph_hash(with({{0, 1}})), graph_hash(with({})));
  EXPECT_NE(graph_hash(with({{0, 1}})), graph_hash(with({{0, 2}})));
  EXPECT_EQ(structure_hash(with({{0, 1}})), structure_hash(with({}))) << "the same plans are valid";
}

TEST(GraphBuilder, RefusesSumsThatOverflow) {
  EXPECT_EQ(refusal([] { return make_graph({kHuge}, {{{}, {kHuge}}}, {}); }),
            "the sum of all bytes overflows: 4611686018427387903 + 4611686018427387903 is not below "
            "4611686018427387904");
  EXPECT_EQ(refusal([] { return make_graph({}, {{{}, {}, kHuge}, {{}, {}, 1}}, {}); }),
            "the sum of all durations overflows: 4611686018427387903 + 1 is not below 4611686018427387904");
  EXPECT_EQ(refusal([] { return make_graph({kHuge}, {{{}, {}, 1, 1}}, {}); }).substr(0, 30),
            "the sum of all bytes overflows");
}

TEST(GraphBuilder, RefusesTwoProducersAndMissingProducers) {
  const auto with = [](std::vector<std::int64_t> in, std::vector<std::int64_t> out0,
                       std::vector<std::int64_t> out1, std::vector<std::int64_t> declared,
                       std::vector<std::int64_t> kept) {
    GraphBuilder builder;
    builder.add_value(Bytes(1), "x");
    builder.add_value(Bytes(1));
    OpSpec first;
    first.name = "a";
    first.inputs = in;
    first.outputs = out0;
    builder.add_op(first);
    OpSpec second;
    second.name = "b";
    second.outputs = out1;
    builder.add_op(second);
    for (std::int64_t v : declared) builder.add_input(v);
    for (std::int64_t v : kept) builder.add_output(v);
    return builder.build();
  };
  EXPECT_EQ(refusal([&] { return with({}, {1}, {1}, {0}, {}); }),
            "value 1 is made twice: by op 0 'a' and by op 1 'b'");
  EXPECT_EQ(refusal([&] { return with({}, {0}, {1}, {0}, {}); }),
            "value 0 'x' is declared a graph input and is made by op 0 'a'");
  EXPECT_EQ(refusal([&] { return with({0}, {1}, {}, {}, {}); }),
            "op 0 'a' reads value 0 'x', which no op makes and which is not declared a graph input");
  EXPECT_EQ(refusal([&] { return with({}, {1}, {}, {}, {0}); }),
            "graph output value 0 'x' is made by no op and is not declared a graph input");
}

TEST(GraphHash, DependsOnWhatPlansDependOnAndNotOnNames) {
  const auto base = [](const char* name, std::int64_t bytes, bool kept) {
    GraphBuilder builder(name);
    const std::int64_t v = builder.add_value(Bytes(bytes), name);
    const std::int64_t outs[] = {v};
    OpSpec op;
    op.name = name;
    op.outputs = outs;
    builder.add_op(op);
    if (kept) builder.add_output(v);
    return graph_hash(builder.build());
  };
  EXPECT_EQ(base("a", 1, false), base("b", 1, false));
  EXPECT_NE(base("a", 1, false), base("a", 2, false));
  EXPECT_NE(base("a", 1, false), base("a", 1, true));
  EXPECT_EQ(base("a", 1, false).size(), 16u);
}

TEST(Rows, TransposeListsRowsByEntry) {
  Rows<OpId, ValueId> rows;
  rows.append_row(std::vector{ValueId(2), ValueId(0)});
  rows.append_row(std::vector<ValueId>{});
  rows.append_row(std::vector{ValueId(2)});
  const auto turned = Rows<OpId, ValueId>::transpose(rows, 3);
  EXPECT_EQ(std::vector(turned[ValueId(2)].begin(), turned[ValueId(2)].end()),
            (std::vector{OpId(0), OpId(2)}));
  EXPECT_TRUE(turned[ValueId(1)].empty());
}

}  // namespace
}  // namespace remat
