#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>

#include "helpers/errors.h"
#include "helpers/places.h"
#include "remat/generate.h"
#include "remat/io.h"
#include "remat/plan.h"

namespace remat {
namespace {

using testing::usage_error;

RandomLayeredOptions layered(std::int64_t ops, double width = RandomLayeredOptions().width,
                             std::uint64_t seed = 1) {
  RandomLayeredOptions o;
  o.ops = ops;
  o.width = width;
  o.seed = seed;
  return o;
}

/// Layers of equal width without skips.
RandomLayeredOptions regular(std::int64_t ops, std::int64_t layers, double edge_density) {
  RandomLayeredOptions o = layered(ops);
  o.layers = layers;
  o.width_variability = 0;
  o.edge_density = edge_density;
  o.skip_density = 0;
  return o;
}

double mean_bytes(const Graph& g) {
  double sum = 0;
  for (Bytes b : g.bytes) sum += static_cast<double>(b.count());
  return sum / static_cast<double>(g.num_values());
}

TEST(RandomLayered, HasOneSourceOneTargetAndNoOtherEnds) {
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    const Graph g = random_layered(layered(60, 0.27, seed));
    ASSERT_EQ(g.num_ops(), 60u);
    ASSERT_EQ(g.num_values(), 60u);
    for (OpId op : g.ops()) {
      EXPECT_EQ(g.inputs[op].empty(), op == OpId(0)) << seed;
      EXPECT_EQ(g.readers[g.outputs[op][0]].empty(), op == OpId(59)) << seed;
    }
  }
}

TEST(RandomLayered, SameSeedSameGraphAndAnotherSeedAnother) {
  const auto make = [](std::uint64_t seed) { return random_layered(layered(100, 0.27, seed)); };
  EXPECT_EQ(make(1), make(1));
  EXPECT_NE(graph_hash(make(1)), graph_hash(make(2)));
}

TEST(RandomLayered, TakesANumberOfLayersInsteadOfAWidth) {
  // Ten layers of one op each between the ends: a path.
  const Graph g = random_layered(regular(12, 10, 0));
  for (OpId op : g.ops()) EXPECT_EQ(g.inputs[op].size(), op == OpId(0) ? 0u : 1u);
}

TEST(RandomLayered, FullDensityJoinsAllPairsOfNeighbouringLayers) {
  EXPECT_EQ(random_layered(regular(14, 3, 1)).inputs.entries(), 4u + 16u + 16u + 4u);
}

TEST(RandomLayered, ResemblesThePublishedInstances) {
  // Ops, width, and of the published instance: edges and keep-all peak (MOCCASIN, Tables 2 and 3).
  struct Published {
    std::int64_t ops;
    double width, edges, peak;
  };
  for (const Published& p : {Published{100, 0.27, 236, 46319},
                             {250, 0.43, 944, 146840},
                             {500, 0.36, 2461, 284439},
                             {1000, 0.31, 5875, 608619}}) {
    double edges = 0, peak = 0, bytes = 0, duration = 0;
    constexpr int kSeeds = 10;
    for (int seed = 1; seed <= kSeeds; ++seed) {
      const Graph g = random_layered(layered(p.ops, p.width, static_cast<std::uint64_t>(seed)));
      edges += static_cast<double>(g.inputs.entries()) / kSeeds;
      peak += static_cast<double>(simulate(g, keep_all_plan(g)).peak.count()) / kSeeds;
      bytes += mean_bytes(g) / kSeeds;
      duration += static_cast<double>(g.base_duration.count()) / static_cast<double>(p.ops) / kSeeds;
    }
    EXPECT_NEAR(edges / p.edges, 1, 0.2) << p.ops;
    EXPECT_NEAR(peak / p.peak, 1, 0.3) << p.ops;
    EXPECT_NEAR(bytes, 2020, 120) << p.ops;
    EXPECT_NEAR(duration, 500, 35) << p.ops;
  }
}

TEST(RandomLayered, MatchesTheSharedInstanceInSizesAndDurations) {
  const std::filesystem::path path = testing::shared_graph("random_layered_n500");
  if (!std::filesystem::exists(path)) GTEST_SKIP() << path << " is not there";
  const Graph real = load_graph(path).graph;
  const Graph made = random_layered(layered(500, 0.36));
  // Largest distance between the two distributions of sizes, and of durations (Kolmogorov and Smirnov).
  const auto distance = [](auto a, auto b) {
    std::sort(a.begin(), a.end());
    std::sort(b.begin(), b.end());
    double worst = 0;
    for (std::size_t i = 0; i < a.size(); ++i) {
      const auto below = std::lower_bound(b.begin(), b.end(), a[i]) - b.begin();
      worst = std::max(worst, std::abs(static_cast<double>(below) - static_cast<double>(i)) /
                                  static_cast<double>(a.size()));
    }
    return worst;
  };
  EXPECT_LT(distance(real.bytes.raw(), made.bytes.raw()), 0.1);
  EXPECT_LT(distance(real.duration.raw(), made.duration.raw()), 0.1);
}

TEST(RandomLayered, NamesTheOptionThatIsOutOfRange) {
  const auto error = [](const RandomLayeredOptions& o) { return usage_error([&] { random_layered(o); }); };
  EXPECT_EQ(error({.edge_density = 1.5}), "edge density = 1.5 is outside [0, 1]");
  EXPECT_EQ(error(layered(2)), "ops = 2 is outside [3, 1073741824]");
  EXPECT_EQ(error({.layers = 99}), "layers = 99 is outside [0, 98]");
}

TEST(Chain, BackwardOpsReadTheGradientAndTheInputOfTheirForwardOp) {
  const Graph g = chain({.length = 3, .bytes = 5, .duration = 2});
  // x f0 f1 f2 loss b2 b1 b0: values 0 1 2 3 4 5 6 7.
  ASSERT_EQ(g.num_ops(), 7u);
  EXPECT_EQ(std::vector(g.inputs[OpId(4)].begin(), g.inputs[OpId(4)].end()),
            (std::vector{ValueId(2), ValueId(4)}));
  EXPECT_EQ(std::vector(g.inputs[OpId(6)].begin(), g.inputs[OpId(6)].end()),
            (std::vector{ValueId(0), ValueId(6)}));
  EXPECT_EQ(g.forward_of[OpId(4)], OpId(2));
  EXPECT_EQ(g.phase[OpId(3)], Phase::kLoss);
  EXPECT_EQ(g.graph_outputs, std::vector{ValueId(7)});
  EXPECT_EQ(g.base_duration, Duration(3 * 2 + 2 + 3 * 4));
  // x, three activations, the loss and its gradient's place at the turn.
  EXPECT_EQ(simulate(g, keep_all_plan(g)).peak, Bytes(5 * 5));
}

TEST(Chain, ForwardOnlyKeepsTheLastActivation) {
  const Graph g = chain({.length = 4, .training = false});
  EXPECT_EQ(g.num_ops(), 4u);
  EXPECT_EQ(g.graph_outputs, std::vector{ValueId(4)});
}

TEST(RandomDag, SharesOfOneAndZeroAreKept) {
  RandomDagOptions o;
  o.ops = 50;
  o.never_share = 1;
  o.workspace_share = 0;
  o.after_share = 1;
  o.kept_share = 0;
  const Graph g = random_dag(o);
  EXPECT_EQ(g.graph_outputs.size(), 1u);
  for (OpId op : g.ops()) {
    EXPECT_FALSE(g.recomputable[op]);
    EXPECT_EQ(g.workspace[op], Bytes(0));
    EXPECT_EQ(g.after[op].size(), op == OpId(0) ? 0u : 1u);
  }
}

TEST(RandomDag, OutputsAreWrittenOverInputsWhereAsked) {
  RandomDagOptions o;
  o.ops = 50;
  EXPECT_EQ(random_dag(o).over.entries(), 0u);
  o.over_share = 1;
  o.max_outputs = 3;
  const Graph g = random_dag(o);
  for (OpId op : g.ops()) {
    const auto inputs = g.inputs[op];
    const auto made = std::count_if(inputs.begin(), inputs.end(), [&](ValueId v) { return g.producer[v]; });
    EXPECT_EQ(std::ssize(g.over[op]), std::min<std::int64_t>(made, std::ssize(g.outputs[op])));
  }
}

TEST(RandomDag, OpsDrawRandomNumbersWhereAsked) {
  RandomDagOptions o;
  o.ops = 50;
  EXPECT_FALSE(random_dag(o).has_generator_states());
  o.random_share = 1;
  const Graph g = random_dag(o);
  for (OpId op : g.ops()) EXPECT_GT(g.generator_state[op], Bytes());
  EXPECT_NE(graph_hash(g), graph_hash(random_dag({.ops = 50})));
}

TEST(RandomDag, ReadsStayWithinReach) {
  RandomDagOptions o;
  o.ops = 200;
  o.reach = 4;
  o.max_outputs = 1;
  const Graph g = random_dag(o);
  for (OpId op : g.ops()) {
    for (ValueId v : g.inputs[op]) EXPECT_GE(v.index(), op.index() + o.inputs - 4);
  }
}

}  // namespace
}  // namespace remat
