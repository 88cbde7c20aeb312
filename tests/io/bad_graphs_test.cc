// Every kind of invalid graph file, with its full error message.
#include <gtest/gtest.h>

#include "remat/error.h"
#include "remat/io.h"

namespace remat {
namespace {

struct BadFile {
  std::string_view name;
  std::string text;
  std::string message;
};
void PrintTo(const BadFile& bad, std::ostream* out) { *out << bad.text.substr(0, 200); }

class BadGraph : public ::testing::TestWithParam<BadFile> {};

TEST_P(BadGraph, IsRefusedWithOneClearLine) {
  std::string message = "accepted";
  try {
    parse_graph(GetParam().text, "g.json");
  } catch (const InputError& error) {
    message = error.what();
  }
  EXPECT_EQ(message, GetParam().message);
  EXPECT_EQ(message.find('\n'), std::string::npos);
}

std::string name_of(const ::testing::TestParamInfo<BadFile>& info) { return std::string(info.param.name); }

std::string nested(std::string_view open, int depth) {
  std::string text;
  for (int i = 0; i < depth; ++i) text += open;
  return text;
}

/// A small valid file with one part replaced.
struct Parts {
  std::string format = R"("format":"remat.graph","version":1,)";
  std::string values = R"("values":[{"bytes":8,"name":"x"},{"bytes":4}],)";
  std::string op = R"({"name":"a","duration":1,"inputs":[0],"outputs":[1]})";
  std::string rest = R"("inputs":[0],"outputs":[1])";
};
std::string file(const Parts& parts) {
  return "{" + parts.format + "\n" + parts.values + "\n\"ops\":[" + parts.op + "],\n" + parts.rest + "}\n";
}

/// The same with one value whose members are `members`.
std::string one_value(const std::string& members) {
  return file({.values = R"("values":[{)" + members + "}],"});
}
/// The same with an op that reads `inputs`.
std::string reading(const std::string& inputs) {
  return file({.op = R"({"name":"a","duration":1,"inputs":)" + inputs + R"(,"outputs":[1]})"});
}
/// The same with further members of the op.
std::string op_with(const std::string& members) {
  return file({.op = R"({"name":"a","duration":1,"inputs":[0],"outputs":[1],)" + members + "}"});
}

INSTANTIATE_TEST_SUITE_P(
    Syntax, BadGraph,
    ::testing::Values(
        BadFile{"Empty", "", "g.json: the file is empty"},
        BadFile{"Blank", " \n\t\n", "g.json: the file is empty"},
        BadFile{
            "NotJson", "PK\x03\x04 zip",
            "g.json:1:1: not valid JSON: syntax error while parsing value - invalid literal; last read: 'P'"},
        BadFile{"Truncated", "{\"format\":\"remat.graph\",\n\"version\":1,\"values\":[{\"byt",
                "g.json:2:27: not valid JSON: syntax error while parsing object key - invalid string: "
                "missing closing "
                "quote; last read: '\"byt'; expected string literal"},
        BadFile{"TruncatedBetweenTokens", "{\"format\":\"remat.graph\",\"version\":1,\"values\":[",
                "g.json:1:46: not valid JSON: syntax error while parsing value - unexpected end of input; "
                "expected '[', "
                "'{', or a literal"},
        BadFile{"TextBehindTheEnd", file({}) + "x",
                "g.json:5:1: not valid JSON: syntax error while parsing value - invalid literal; last read: "
                "'1]}<U+000A>x'; "
                "expected end of input"},
        BadFile{"InvalidUtf8", file({.rest = "\"name\":\"a\xff\""}),
                "g.json:4:10: not valid JSON: syntax error while parsing value - invalid string: ill-formed "
                "UTF-8 byte; "
                "last read: '\"a\\xff'"},
        BadFile{"Utf16", std::string("\xff\xfe{\0}\0", 6),
                "g.json:1:1: not valid JSON: syntax error while parsing value - invalid literal; last read: "
                "'\\xff'"},
        BadFile{"NaN", one_value(R"("bytes":NaN)"),
                "g.json:2:20: not valid JSON: syntax error while parsing value - invalid literal; last read: "
                "'\"bytes\":N'"},
        BadFile{"ArrayBomb", nested("[", 100000), "g.json:1:1: found an array instead of an object"},
        BadFile{"DeepArrays", "{\"nodes\":" + nested("[", 100000),
                "g.json:1:137: nested deeper than 128 levels"},
        BadFile{"DeepObjects", nested("{\"x\":", 100000), "g.json:1:641: nested deeper than 128 levels"},
        BadFile{"Number", "3", "g.json:1:1: found 3 instead of an object"}),
    name_of);

INSTANTIATE_TEST_SUITE_P(
    Format, BadGraph,
    ::testing::Values(
        BadFile{"NeitherFormat", "{}",
                "g.json: neither a remat.graph file (no 'format') nor node-link JSON (no 'nodes')"},
        BadFile{"OtherFormat", R"({"format":"onnx","version":1})",
                "g.json: the format is 'onnx' instead of 'remat.graph'"},
        BadFile{"Plan", R"({"format":"remat.plan","version":1,"steps":[]})",
                "g.json: the format is 'remat.plan' instead of 'remat.graph'"},
        BadFile{"LaterVersion", file({.format = R"("format":"remat.graph","version":2,)"}),
                "g.json:1:36: 'version': version 2 is not supported; this reader knows version 1"},
        BadFile{"VersionAsText", file({.format = R"("format":"remat.graph","version":"1",)"}),
                "g.json:1:37: 'version': found the text '1' instead of an integer"},
        BadFile{"NoVersion", file({.format = R"("format":"remat.graph",)"}),
                "g.json:4:27: the key 'version' is missing"},
        BadFile{"NoValues", file({.values = ""}), "g.json:4:27: the key 'values' is missing"},
        BadFile{"KeyTwice", file({.rest = R"("inputs":[0],"inputs":[0])"}),
                "g.json:4:21: 'inputs': the key appears twice"},
        BadFile{"UnknownKeyTwice", file({.rest = R"("colour":1,"inputs":[],"colour":2)"}),
                "g.json:4:31: the key 'colour' appears twice"},
        BadFile{"KeyTwiceWhereNobodyReads", file({.rest = R"("more":[{"a":1,"b":{"c":1,"c":2}}])"}),
                "g.json:4:29: the key 'c' appears twice"},
        BadFile{"ValuesAsObject", file({.values = R"("values":{},)"}),
                "g.json:2:10: 'values': found an object instead of an array"},
        BadFile{"OpAsArray", file({.op = "[]"}), "g.json:3:8: 'ops': found an array instead of an object"}),
    name_of);

constexpr std::string_view kHuge = "99999999999999999999999";

INSTANTIATE_TEST_SUITE_P(
    Amounts, BadGraph,
    ::testing::Values(
        BadFile{"FractionalBytes", one_value(R"("bytes":1.5)"),
                "g.json:2:23: 'values': value 0: 'bytes': found the fraction 1.5 instead of an integer"},
        BadFile{"WholeNumberAsFraction", one_value(R"("bytes":8.0)"),
                "g.json:2:23: 'values': value 0: 'bytes': found the fraction 8.0 instead of an integer"},
        BadFile{"NegativeBytes", one_value(R"("bytes":-5,"name":"x")"),
                "g.json:2:33: value 0 'x': bytes -5 is outside [0, 4611686018427387904)"},
        BadFile{"BytesOfTwoToThe62", one_value(R"("bytes":4611686018427387904)"),
                "g.json:2:39: value 0: bytes 4611686018427387904 is outside [0, 4611686018427387904)"},
        BadFile{"BytesBeyondInt64", one_value(R"("bytes":9223372036854775808)"),
                "g.json:2:39: 'values': value 0: 'bytes': 9223372036854775808 does not fit into 64 bits"},
        BadFile{"BytesBeyondUint64", one_value(R"("bytes":)" + std::string(kHuge)),
                "g.json:2:43: 'values': value 0: 'bytes': 99999999999999999999999 does not fit into 64 bits"},
        BadFile{"BytesBeyondDouble", one_value(R"("bytes":1e400)"),
                "g.json:2:25: not valid JSON: number overflow parsing '1e400'"},
        BadFile{"BytesAsText", one_value(R"("bytes":"8")"),
                "g.json:2:22: 'values': value 0: 'bytes': found the text '8' instead of an integer"},
        BadFile{"BytesNull", one_value(R"("bytes":null)"),
                "g.json:2:23: 'values': value 0: 'bytes': found null instead of an integer"},
        BadFile{"BytesMissing", one_value(R"("name":"x")"),
                "g.json:2:22: 'values': value 0 'x': the key 'bytes' is missing"},
        BadFile{"NegativeDuration", file({.op = R"({"name":"a","duration":-1,"inputs":[0],"outputs":[1]})"}),
                "g.json:3:60: op 0 'a': duration -1 is outside [0, 4611686018427387904)"},
        BadFile{"NegativeWorkspace",
                file({.op = R"({"name":"a","duration":1,"workspace":-7,"inputs":[0],"outputs":[1]})"}),
                "g.json:3:74: op 0 'a': workspace -7 is outside [0, 4611686018427387904)"},
        BadFile{
            "BytesOverflowTogether",
            file({.values = R"("values":[{"bytes":4000000000000000000},{"bytes":4000000000000000000}],)"}),
            "g.json: the sum of all bytes overflows: 4000000000000000000 + 4000000000000000000 is not below "
            "4611686018427387904"},
        BadFile{
            "WorkspaceOverflowsWithBytes",
            file(
                {.op =
                     R"({"name":"a","duration":1,"workspace":4611686018427387903,"inputs":[0],"outputs":[1]})"}),
            "g.json: the sum of all bytes overflows: 12 + 4611686018427387903 is not below "
            "4611686018427387904"},
        BadFile{"DurationsOverflowTogether",
                file({.op = R"({"name":"a","duration":4000000000000000000,"inputs":[0],"outputs":[1]},)"
                            R"({"name":"b","duration":4000000000000000000,"inputs":[0],"outputs":[]})"}),
                "g.json: the sum of all durations overflows: 4000000000000000000 + 4000000000000000000 is "
                "not below "
                "4611686018427387904"}),
    name_of);

INSTANTIATE_TEST_SUITE_P(
    Edges, BadGraph,
    ::testing::Values(
        BadFile{"NoOps", file({.op = ""}), "g.json: the graph has no ops"},
        BadFile{"UnknownInput", reading("[7]"), "g.json: op 0 'a': input 7 is not one of the 2 values"},
        BadFile{"NegativeInput", reading("[-1]"), "g.json: op 0 'a': input -1 is not one of the 2 values"},
        BadFile{"InputBeyond32Bits", reading("[4294967296]"),
                "g.json: op 0 'a': input 4294967296 is not one of the 2 values"},
        BadFile{
            "FractionalInput", reading("[0, 0.5]"),
            "g.json:3:49: 'ops': op 0 'a': 'inputs': entry 1: found the fraction 0.5 instead of an integer"},
        BadFile{"NestedInput", reading("[[0]]"),
                "g.json:3:43: 'ops': op 0 'a': 'inputs': entry 0: found an array instead of an integer"},
        BadFile{"UnknownAfter", op_with(R"("after":[4])"),
                "g.json: op 0 'a': 'after' 4 is not one of the 1 ops"},
        BadFile{"AfterItself", op_with(R"("after":[0])"),
                "g.json: op 0 'a': 'after' names op 0 'a', which is not earlier in the order"},
        BadFile{"OverOneValue", op_with(R"("over":[[0]])"),
                "g.json:3:70: 'ops': op 0 'a': 'over': entry 0: found 1 integers instead of an input and an "
                "output"},
        BadFile{"OverNoPair", op_with(R"("over":[0])"),
                "g.json:3:69: 'ops': op 0 'a': 'over': entry 0: found 0 instead of a pair of integers"},
        BadFile{"OverAGraphInput", op_with(R"("over":[[0,1]])"),
                "g.json: op 0 'a': 'over' names value 0 'x', a graph input, which stays in memory"},
        BadFile{"NegativeForwardOf", op_with(R"("forward_of":-1)"),
                "g.json:3:75: 'ops': op 0 'a': 'forward_of': -1 is not an op index"},
        BadFile{"UnknownForwardOf", op_with(R"("forward_of":3)"),
                "g.json: op 0 'a': 'forward_of' 3 is not one of the 1 ops"},
        BadFile{
            "UnknownRecompute", op_with(R"("recompute":"maybe")"),
            "g.json:3:78: 'ops': op 0 'a': 'recompute': found 'maybe' instead of one of 'allowed', 'never'"},
        BadFile{"UnknownCopy", one_value(R"("bytes":8,"copy":"no")"),
                "g.json:2:32: 'values': value 0: 'copy': found 'no' instead of one of 'allowed', 'never'"},
        BadFile{"UnknownPhase", op_with(R"("phase":"mid")"),
                "g.json:3:72: 'ops': op 0 'a': 'phase': found 'mid' instead of one of '', 'forward', 'loss', "
                "'backward', "
                "'update'"},
        BadFile{"NoInputsOfAnOp", file({.op = R"({"name":"a","duration":1,"outputs":[1]})"}),
                "g.json:3:46: 'ops': op 0 'a': the key 'inputs' is missing"},
        BadFile{
            "UndeclaredInput", file({.rest = R"("outputs":[1])"}),
            "g.json: op 0 'a' reads value 0 'x', which no op makes and which is not declared a graph input"},
        BadFile{"OutputThatNobodyMakes",
                file({.values = R"("values":[{"bytes":8},{"bytes":4},{"bytes":1}],)",
                      .rest = R"("inputs":[0],"outputs":[2])"}),
                "g.json: graph output value 2 is made by no op and is not declared a graph input"},
        BadFile{"UnknownOutput", file({.rest = R"("inputs":[0],"outputs":[9])"}),
                "g.json: graph output 9 is not one of the 2 values"},
        BadFile{"InputThatIsMade", file({.rest = R"("inputs":[0,1])"}),
                "g.json: value 1 is declared a graph input and is made by op 0 'a'"},
        BadFile{"TwoProducers",
                file({.op = R"({"name":"a","duration":1,"inputs":[0],"outputs":[1]},)"
                            R"({"name":"b","duration":1,"inputs":[0],"outputs":[1]})"}),
                "g.json: value 1 is made twice: by op 0 'a' and by op 1 'b'"},
        BadFile{
            "CycleThroughTheOrder",
            file({.values = R"("values":[{"bytes":8},{"bytes":4}],)",
                  .op = R"({"name":"a","duration":1,"inputs":[1],"outputs":[0]},)"
                        R"({"name":"b","duration":1,"inputs":[0],"outputs":[1]})",
                  .rest = R"("outputs":[1])"}),
            "g.json: op 0 'a' reads value 1, which is made by op 1 'b', later in the order: the order is not "
            "topological or there is a cycle"},
        BadFile{"OpThatReadsItsOwnOutput", reading("[1]"),
                "g.json: op 0 'a' reads value 1, which is made by op 0 'a' itself"}),
    name_of);

INSTANTIATE_TEST_SUITE_P(
    NodeLink, BadGraph,
    ::testing::Values(
        BadFile{"NodeLinkEmpty", R"({"nodes":[],"links":[]})", "g.json: the graph has no ops"},
        BadFile{"NodeLinkNoLinks", R"({"nodes":[{"id":1}]})",
                "g.json:1:20: the key 'links' (or 'edges') is missing"},
        BadFile{"NodeLinkCycle",
                R"({"nodes":[{"id":"a"},{"id":"b"},{"id":"c"}],"links":[{"source":"a","target":"b"},)"
                R"({"source":"b","target":"c"},{"source":"c","target":"b"}]})",
                "g.json: the links form a cycle of 2 nodes: 'b' -> 'c' -> 'b'"},
        BadFile{"NodeLinkSelfLoop", R"({"nodes":[{"id":1}],"links":[{"source":1,"target":1}]})",
                "g.json: the links form a cycle of 1 nodes: 1 -> 1"},
        BadFile{"NodeLinkSameNameTwice", R"({"nodes":[{"id":1},{"id":1.0}],"links":[]})",
                "g.json: nodes 0 and 1 have the same name 1"},
        BadFile{"NodeLinkUnknownNode", R"({"nodes":[{"id":1}],"links":[{"source":1,"target":"1"}]})",
                "g.json: link 0 names '1', which is not one of the 1 nodes"},
        BadFile{"NodeLinkUnnamedEnds", R"({"nodes":[{"id":1}],"links":[{"from":1,"to":1}]})",
                "g.json:1:46: 'links': link 0: the link has neither 'source' and 'target' nor '0' and '1'"},
        BadFile{"NodeLinkUnnamedNode", R"({"nodes":[{"cost_ram":3}],"links":[]})",
                "g.json:1:24: 'nodes': node 0: the node has neither 'id' nor 'name'"},
        BadFile{"NodeLinkListAsName", R"({"nodes":[{"id":[1,2]}],"links":[]})",
                "g.json:1:17: 'nodes': node 0: 'id': found an array instead of the name of a node (text or "
                "an integer)"},
        BadFile{"NodeLinkNegativeSize", R"({"nodes":[{"id":1,"cost_ram":-1}],"links":[]})",
                "g.json:1:32: 'nodes': node 0: 'cost_ram': -1 is outside [0, 4611686018427387904)"},
        BadFile{"NodeLinkHugeSize", R"({"nodes":[{"id":1,"out_cost":1e30}],"links":[]})",
                "g.json:1:34: 'nodes': node 0: 'out_cost': 1e30 is outside [0, 4611686018427387904)"},
        BadFile{"NodeLinkOrderOfSome", R"({"nodes":[{"id":1},{"id":2}],"links":[],"graph":{"order":[1]}})",
                "g.json: graph.order names 1 of the 2 nodes"},
        BadFile{"NodeLinkOrderRepeats", R"({"nodes":[{"id":1},{"id":2}],"links":[],"graph":{"order":[1,1]}})",
                "g.json: graph.order names 1 twice"},
        BadFile{"NodeLinkOrderOfOthers", R"({"nodes":[{"id":1}],"links":[],"graph":{"order":[5]}})",
                "g.json: graph.order entry 0 names 5, which is not one of the 1 nodes"},
        BadFile{
            "NodeLinkOrderBackwards",
            R"({"nodes":[{"id":1},{"id":2}],"links":[{"0":2,"1":1}],"graph":{"order":[1,2]}})",
            "g.json: op 0 '0' reads value 1, which is made by op 1 '1', later in the order: the order is not "
            "topological or there is a cycle"},
        BadFile{"NodeLinkOddPair", R"({"nodes":[{"id":1}],"links":[],"graph":[["name"]]})",
                "g.json:1:48: 'graph': a pair of a key and a value has 1 entries"}),
    name_of);

TEST(BadGraphs, MessagesAreOneLineWhateverANameHolds) {
  constexpr std::string_view kText =
      R"({"format":"remat.graph","version":1,"values":[],)"
      R"("ops":[{"name":"two\nlines","duration":0,"inputs":[0],"outputs":[]}]})";
  try {
    parse_graph(kText, "g.json");
    FAIL() << "the op reads a value that does not exist";
  } catch (const InputError& error) {
    EXPECT_NE(std::string(error.what()).find("op 0 'two lines'"), std::string::npos) << error.what();
    EXPECT_EQ(std::string(error.what()).find('\n'), std::string::npos);
  }
}

}  // namespace
}  // namespace remat
