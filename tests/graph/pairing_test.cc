#include "graph/pairing.h"

#include <gtest/gtest.h>

#include <filesystem>

#include "helpers/graphs.h"
#include "helpers/places.h"
#include "remat/generate.h"
#include "remat/io.h"

namespace remat {
namespace {

TEST(Pairing, IsDerivedAtTheLossOfATrainingChain) {
  for (int layers : {2, 5, 50}) {
    const auto pairing = find_pairing(testing::training_chain(layers));
    ASSERT_TRUE(pairing);
    EXPECT_TRUE(pairing->derived);
    EXPECT_EQ(pairing->first_backward, OpId(layers));
  }
}

TEST(Pairing, TakesThePhasesWhereTheyAreGiven) {
  GraphBuilder builder;
  for (int i = 0; i < 4; ++i) {
    const std::vector<std::int64_t> out{builder.add_value(Bytes(1))};
    const std::vector<std::int64_t> in =
        i == 0 ? std::vector<std::int64_t>{} : std::vector<std::int64_t>{i - 1};
    builder.add_op({.name = "op",
                    .duration = Duration(1),
                    .phase = i == 3 ? Phase::kBackward : Phase::kForward,
                    .inputs = in,
                    .outputs = out});
  }
  const auto pairing = find_pairing(builder.build());
  ASSERT_TRUE(pairing);
  EXPECT_FALSE(pairing->derived);
  EXPECT_EQ(pairing->first_backward, OpId(3));
}

TEST(Pairing, IsNotSeenInAPlainChain) {
  std::vector<testing::TestOp> ops{{{}, {1}}};
  for (std::int64_t i = 0; i < 30; ++i) ops.push_back({{i}, {1}});
  EXPECT_FALSE(find_pairing(testing::make_graph({}, ops, {})));
}

/// f0 -> f1 -> ... -> loss (kept, read by nobody); backward ops read a seed and the forward values.
TEST(Pairing, StartsTheBackwardPassAfterALossThatNobodyReads) {
  std::vector<testing::TestOp> ops{{{0}, {4}}};
  for (std::int64_t i = 1; i < 6; ++i) ops.push_back({{i}, {4}});
  ops.push_back({{6}, {1}});  // value 7: the loss
  ops.push_back({{0, 6}, {4}});
  for (std::int64_t i = 5; i > 0; --i) ops.push_back({{i, 13 - i}, {4}});
  const auto pairing = find_pairing(testing::make_graph({4}, ops, {7}));
  ASSERT_TRUE(pairing);
  EXPECT_EQ(pairing->first_backward, OpId(7));
}

TEST(Pairing, IsNotSeenInRandomLayeredGraphs) {
  for (std::uint64_t seed = 1; seed <= 60; ++seed) {
    RandomLayeredOptions options;
    options.seed = seed;
    options.width = 0.3;
    for (std::int64_t ops : {60, 100, 250}) {
      options.ops = ops;
      EXPECT_FALSE(find_pairing(random_layered(options))) << ops << " ops, seed " << seed;
    }
  }
}

/// The graph without its phases.
Graph without_phases(const Graph& graph) {
  Graph result = graph;
  for (OpId op : result.ops()) result.phase[op] = Phase::kNone;
  return result;
}

TEST(Pairing, IsDerivedNearTheTrueBoundaryOfTrainingSteps) {
  for (const char* model :
       {"ffn", "resnet", "vgg", "unet", "mobilenet", "gpt", "transformer", "fno", "ufno", "uno", "regnet"}) {
    for (Optimizer optimizer : {Optimizer::kNone, Optimizer::kSgd, Optimizer::kAdam}) {
      TrainingOptions options;
      options.model = model;
      options.optimizer = optimizer;
      const Graph graph = training_graph(options);
      const auto given = find_pairing(graph);
      const auto derived = find_pairing(without_phases(graph));
      ASSERT_TRUE(given && derived) << model;
      EXPECT_FALSE(given->derived);
      EXPECT_TRUE(derived->derived);
      const int late = derived->first_backward.index() - given->first_backward.index();
      EXPECT_TRUE(late >= 0 && late <= 2) << model << ": " << late << " ops late";
    }
  }
}

TEST(Pairing, FindsTheLossOfCapturesFromPyTorch) {
  const std::pair<const char*, int> kFirstBackward[] = {
      {"torch_gpt2_12", 293}, {"torch_resnet50", 229}, {"torch_transformer_6", 376}, {"torch_unet", 87}};
  for (const auto& [name, first] : kFirstBackward) {
    const auto path = testing::shared_graph(name);
    if (!std::filesystem::exists(path)) GTEST_SKIP() << path << " is not there";
    const auto pairing = find_pairing(load_graph(path).graph);
    ASSERT_TRUE(pairing) << name;
    EXPECT_EQ(pairing->first_backward, OpId(first)) << name;
  }
}

}  // namespace
}  // namespace remat
