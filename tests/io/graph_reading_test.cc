#include <gtest/gtest.h>

#include "remat/error.h"
#include "remat/io.h"

namespace remat {
namespace {

constexpr std::string_view kTwoLayers =
    R"({"format": "remat.graph", "version": 1, "name": "two_layers", "time_unit": "ns",
 "values": [{"bytes": 4096, "name": "x"}, {"bytes": 1024, "copy": "never"}, {"bytes": 2048}],
 "ops": [{"name": "mm", "kind": "aten.mm.default", "duration": 5200, "workspace": 64, "inputs": [0], "outputs": [1],
          "recompute": "allowed", "after": [], "phase": "forward", "module": "layers.0", "source": "model.py:42",
          "forward_of": null},
         {"name": "relu", "duration": 900, "inputs": [1, 0, 1], "outputs": [2], "recompute": "never", "after": [0],
          "phase": "backward", "forward_of": 0}],
 "inputs": [0], "outputs": [2]})";

TEST(GraphReading, TakesEveryFieldOfRematGraph) {
  const LoadedGraph loaded = parse_graph(kTwoLayers, "g");
  EXPECT_EQ(loaded.format, GraphFormat::kRematGraph);
  EXPECT_TRUE(loaded.warnings.empty());
  const Graph& g = loaded.graph;
  const OpId mm(0), relu(1);
  EXPECT_EQ(g.name, "two_layers");
  EXPECT_EQ(g.time_unit, "ns");
  EXPECT_EQ(g.bytes.raw(), (std::vector<Bytes>{Bytes(4096), Bytes(1024), Bytes(2048)}));
  EXPECT_EQ(g.value_name[ValueId(0)], "x");
  EXPECT_EQ(g.copyable.raw(), (std::vector<bool>{true, false, true}));
  EXPECT_EQ(g.op_name[mm], "mm");
  EXPECT_EQ(g.op_kind[mm], "aten.mm.default");
  EXPECT_EQ(g.op_module[mm], "layers.0");
  EXPECT_EQ(g.op_source[mm], "model.py:42");
  EXPECT_EQ(g.op_source[relu], "");
  EXPECT_EQ(g.duration[mm], Duration(5200));
  EXPECT_EQ(g.workspace[mm], Bytes(64));
  EXPECT_EQ(g.phase[mm], Phase::kForward);
  EXPECT_TRUE(g.recomputable[mm]);
  EXPECT_TRUE(g.forward_of[mm].is_none());
  EXPECT_FALSE(g.recomputable[relu]);
  EXPECT_EQ(g.workspace[relu], Bytes(0));
  EXPECT_EQ(g.phase[relu], Phase::kBackward);
  EXPECT_EQ(g.forward_of[relu], mm);
  EXPECT_EQ(g.after[relu].front(), mm);
  EXPECT_EQ(g.inputs[relu].size(), 2u) << "a value that is listed twice is one input";
  EXPECT_EQ(g.graph_inputs, std::vector<ValueId>{ValueId(0)});
  EXPECT_EQ(g.graph_outputs, std::vector<ValueId>{ValueId(2)});
}

TEST(GraphReading, TakesKeysInAnySequence) {
  const LoadedGraph loaded =
      parse_graph(R"({"ops":[{"outputs":[1],"inputs":[0],"duration":1,"name":"a"}],"inputs":[0],"version":1,)"
                  R"("values":[{"bytes":8},{"bytes":4}],"format":"remat.graph"})",
                  "g");
  EXPECT_EQ(loaded.graph.num_ops(), 1u);
  EXPECT_EQ(loaded.graph.resident, Bytes(8));
}

TEST(GraphReading, SkipsAByteOrderMark) {
  EXPECT_EQ(parse_graph("\xef\xbb\xbf" + std::string(kTwoLayers), "g").graph,
            parse_graph(kTwoLayers, "g").graph);
}

TEST(GraphReading, NamesAllUnknownKeysInOneWarning) {
  const LoadedGraph loaded = parse_graph(
      R"({"format":"remat.graph","version":1,"values":[{"bytes":8,"dtype":"f32"},{"bytes":4,"dtype":"f16"}],)"
      R"("ops":[{"name":"a","duration":1,"inputs":[0],"outputs":[1],"flops":{"mul":[1,2],"add":{}}}],)"
      R"("inputs":[0],"author":null})",
      "g.json");
  ASSERT_EQ(loaded.warnings.size(), 1u);
  EXPECT_EQ(loaded.warnings[0], "g.json: ignored unknown keys: values[].dtype, ops[].flops, author");
  EXPECT_EQ(loaded.graph.num_values(), 2u);
}

TEST(GraphReading, TakesTheLargestAmounts) {
  const LoadedGraph loaded =
      parse_graph(R"({"format":"remat.graph","version":1,"values":[{"bytes":4611686018427387903}],)"
                  R"("ops":[{"name":"a","duration":4611686018427387903,"inputs":[],"outputs":[0]}]})",
                  "g");
  EXPECT_EQ(loaded.graph.bytes[ValueId(0)].count(), kMaxCount - 1);
  EXPECT_EQ(loaded.graph.base_duration.count(), kMaxCount - 1);
}

std::vector<std::string> op_names(const Graph& graph) {
  std::vector<std::string> names;
  for (OpId op : graph.ops()) names.emplace_back(graph.op_name[op]);
  return names;
}

TEST(NodeLink, ReadsCheckmatesKeysAndTheBackwardFlag) {
  const LoadedGraph loaded =
      parse_graph(R"({"directed":true,"multigraph":false,"graph":{"name":"net"},"nodes":[)"
                  R"({"name":"conv","backward":false,"cost_cpu":7,"cost_ram":100,"id":0},)"
                  R"({"name":"conv_backward","backward":true,"cost_cpu":14,"cost_ram":50,"id":1}],)"
                  R"("links":[{"source":0,"target":1}]})",
                  "g");
  EXPECT_EQ(loaded.format, GraphFormat::kNodeLink);
  EXPECT_TRUE(loaded.warnings.empty());
  const Graph& g = loaded.graph;
  EXPECT_EQ(g.name, "net");
  EXPECT_EQ(op_names(g), (std::vector<std::string>{"conv", "conv_backward"}));
  EXPECT_EQ(g.phase.raw(), (std::vector<Phase>{Phase::kForward, Phase::kBackward}));
  EXPECT_EQ(g.duration.raw(), (std::vector<Duration>{Duration(7), Duration(14)}));
  EXPECT_EQ(g.bytes.raw(), (std::vector<Bytes>{Bytes(100), Bytes(50)}));
  EXPECT_EQ(g.inputs[OpId(1)].front(), ValueId(0));
  EXPECT_TRUE(g.graph_inputs.empty() && g.graph_outputs.empty());
}

TEST(NodeLink, ReadsMoccasinsKeysAndTheGivenOrder) {
  const LoadedGraph loaded = parse_graph(
      R"({"graph":{"order":[2,"b",0],"pos":{"0":[1,2]}},"nodes":[{"out_cost":1,"duration":10,"name":0},)"
      R"({"out_cost":2,"duration":20,"name":2},{"out_cost":3,"duration":30,"name":"b"}],)"
      R"("links":[{"0":2,"1":0},{"0":"b","1":0},{"0":"b","1":0}]})",
      "g");
  const Graph& g = loaded.graph;
  EXPECT_EQ(op_names(g), (std::vector<std::string>{"2", "b", "0"}));
  EXPECT_EQ(g.duration.raw(), (std::vector<Duration>{Duration(20), Duration(30), Duration(10)}));
  EXPECT_EQ(g.inputs[OpId(2)].size(), 2u) << "a link that is listed twice is one edge";
  EXPECT_EQ(g.phase[OpId(0)], Phase::kNone);
}

TEST(NodeLink, OrdersByKahnWithTheSmallestIndexFirst) {
  const LoadedGraph loaded =
      parse_graph(R"({"nodes":[{"id":"d"},{"id":"c"},{"id":"b"},{"id":"a"}],)"
                  R"("edges":[{"source":"a","target":"d"},{"source":"b","target":"d"}]})",
                  "g.json");
  EXPECT_EQ(op_names(loaded.graph), (std::vector<std::string>{"1", "2", "3", "0"})) << "nodes by index";
  EXPECT_EQ(loaded.warnings,
            std::vector<std::string>{
                "g.json: 4 of 4 nodes have neither 'out_cost' nor 'cost_ram': their size is 0"});
}

TEST(NodeLink, TakesGraphAttributesAsPairs) {
  const LoadedGraph loaded = parse_graph(
      R"({"graph":[["name","pairs"],["order",[2,1]]],"nodes":[{"id":1,"cost_ram":1},{"id":2,"cost_ram":2}],)"
      R"("links":[{"source":2,"target":1}]})",
      "g");
  EXPECT_EQ(loaded.graph.name, "pairs");
  EXPECT_EQ(loaded.graph.bytes.raw(), (std::vector<Bytes>{Bytes(2), Bytes(1)}));
}

TEST(NodeLink, CutsFractionsOffAndSaysSo) {
  const LoadedGraph loaded = parse_graph(
      R"({"nodes":[{"id":1,"cost_ram":1.9,"cost_cpu":2.0},{"id":2,"cost_ram":1e3}],"links":[]})", "g.json");
  EXPECT_EQ(loaded.graph.bytes.raw(), (std::vector<Bytes>{Bytes(1), Bytes(1000)}));
  EXPECT_EQ(loaded.graph.duration[OpId(0)], Duration(2));
  EXPECT_EQ(loaded.warnings,
            std::vector<std::string>{"g.json: cut off the fractions of 1 sizes and durations"});
}

TEST(NodeLink, PrefersIdToNameAndOutCostToCostRam) {
  const LoadedGraph loaded =
      parse_graph(R"({"nodes":[{"name":"x","id":5,"cost_ram":1,"out_cost":2,"cost_cpu":3,"duration":4}],)"
                  R"("links":[],"edges":[{"source":5,"target":5}]})",
                  "g");
  EXPECT_EQ(op_names(loaded.graph), std::vector<std::string>{"x"});
  EXPECT_EQ(loaded.graph.bytes[ValueId(0)], Bytes(2));
  EXPECT_EQ(loaded.graph.duration[OpId(0)], Duration(4));
  EXPECT_TRUE(loaded.graph.inputs[OpId(0)].empty()) << "links are preferred to edges";
}

}  // namespace
}  // namespace remat
