// A written graph reads back equal, with any names.
#include <gtest/gtest.h>

#include "helpers/graphs.h"
#include "remat/io.h"

namespace remat {
namespace {

TEST(RoundTrip, RandomGraphsComeBackEqual) {
  Random random(1);
  for (int i = 0; i < 500; ++i) {
    const Graph graph = testing::random_graph(random, {.max_ops = 30, .max_values = 40});
    const std::string text = format_graph(graph);
    const LoadedGraph read = parse_graph(text, "g");
    EXPECT_TRUE(read.warnings.empty());
    ASSERT_EQ(read.graph, graph) << text;
    ASSERT_EQ(graph_hash(read.graph), graph_hash(graph));
    ASSERT_EQ(format_graph(read.graph), text);
  }
}

TEST(RoundTrip, EveryFieldAndOddNamesComeBackEqual) {
  const std::string odd =
      "quote \" backslash \\ newline \n tab \t nul " + std::string(1, '\0') + " del \x7f euro \u20ac";
  GraphBuilder builder(odd, "\u00b5s");
  const std::int64_t x = builder.add_value(Bytes(kMaxCount / 2), odd), y = builder.add_value(Bytes(0));
  builder.add_input(x);
  builder.add_output(y);
  const std::int64_t in[] = {x}, out[] = {y}, first[] = {0};
  builder.add_op({.name = odd,
                  .kind = odd,
                  .module = odd,
                  .source = odd,
                  .duration = Duration(3),
                  .inputs = in,
                  .outputs = {}});
  builder.add_op({.name = "",
                  .duration = Duration(kMaxCount / 2),
                  .workspace = Bytes(5),
                  .recomputable = false,
                  .phase = Phase::kUpdate,
                  .forward_of = 0,
                  .outputs = out,
                  .after = first});
  const Graph graph = builder.build();
  EXPECT_EQ(parse_graph(format_graph(graph), "g").graph, graph);
}

TEST(RoundTrip, NamesThatAreNotUtf8AreWrittenReadably) {
  GraphBuilder builder("a\xff");
  builder.add_op({.name = "b\xc3"});
  const Graph read = parse_graph(format_graph(builder.build()), "g").graph;
  EXPECT_EQ(read.name, "a\ufffd");
  EXPECT_EQ(read.op_name[OpId(0)], "b\ufffd");
}

}  // namespace
}  // namespace remat
