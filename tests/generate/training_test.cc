#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "generate/cost.h"
#include "generate/models.h"
#include "helpers/errors.h"
#include "remat/generate.h"
#include "remat/plan.h"

namespace remat {
namespace {

using testing::usage_error;

TrainingOptions model(std::string name, std::string variant = "") {
  TrainingOptions o;
  o.model = std::move(name);
  o.variant = std::move(variant);
  return o;
}

TrainingOptions at_depth(std::int64_t depth, TrainingOptions o) {
  o.settings.depth = depth;
  return o;
}

TrainingOptions at_batch(std::int64_t batch, TrainingOptions o) {
  o.settings.batch = batch;
  return o;
}

TrainingOptions primitives(TrainingOptions o, Optimizer optimizer) {
  o.granularity = Granularity::kPrimitive;
  o.optimizer = optimizer;
  return o;
}

std::int64_t edges_between_ops(const Graph& g) {
  std::int64_t edges = 0;
  for (OpId op : g.ops()) edges += static_cast<std::int64_t>(predecessors(g, op).size());
  return edges;
}

double keep_all_gib(const Graph& g) {
  return static_cast<double>(simulate(g, keep_all_plan(g)).peak.count()) / 1073741824.0;
}

/// Numbers in the parameters: kept besides the loss where gradients are kept.
std::int64_t parameter_count(const TrainingOptions& o) {
  const Graph g = training_graph(o);
  std::int64_t bytes = 0;
  for (ValueId v : g.graph_inputs) {
    const std::string_view name = g.value_name[v];
    const bool batch = name.find('.') == std::string_view::npos && name != "embedding";
    const bool state = name.find("running_") != std::string_view::npos;
    if (!batch && !state) bytes += g.bytes[v].count();
    if (name == "positions" && o.model == "gpt") bytes += g.bytes[v].count();
  }
  return bytes / 4;
}

TEST(TrainingGraph, HasThePublishedNumbersOfParameters) {
  EXPECT_EQ(parameter_count(at_depth(18, model("resnet"))), 11689512);
  EXPECT_EQ(parameter_count(at_depth(34, model("resnet"))), 21797672);
  EXPECT_EQ(parameter_count(at_depth(50, model("resnet"))), 25557032);
  EXPECT_EQ(parameter_count(at_depth(101, model("resnet"))), 44549160);
  EXPECT_EQ(parameter_count(at_depth(152, model("resnet"))), 60192808);
  EXPECT_EQ(parameter_count(model("regnet", "x_32gf")), 107811560);
  EXPECT_EQ(parameter_count(model("regnet", "x_3_2gf")), 15296552);
  EXPECT_EQ(parameter_count(model("regnet", "x_400mf")), 5495976);
  EXPECT_EQ(parameter_count(at_depth(11, model("vgg"))), 132863336);
  EXPECT_EQ(parameter_count(at_depth(16, model("vgg"))), 138357544);
  EXPECT_EQ(parameter_count(at_depth(19, model("vgg"))), 143667240);
  EXPECT_EQ(parameter_count(at_depth(121, model("densenet"))), 7978856);
  EXPECT_EQ(parameter_count(model("densenet", "161")), 28681000);
  EXPECT_EQ(parameter_count(model("mobilenet")), 4231976);
  // 6998552 with biases; normalisation has two numbers for each of the 7280 channels.
  EXPECT_EQ(parameter_count(model("googlenet")), 6998552 + 7280);
  EXPECT_EQ(parameter_count(model("mlp_mixer", "base")), 59880472);
  EXPECT_EQ(parameter_count(model("gpt", "small")), 124439808);
  EXPECT_EQ(parameter_count(model("gpt", "medium")), 354823168);
}

TEST(TrainingGraph, PeaksLikeACaptureOfTheSameModelFromPyTorch) {
  // The capture holds 2869235560 bytes at batch 32.
  const Graph g = training_graph(model("resnet"));
  EXPECT_NEAR(static_cast<double>(simulate(g, keep_all_plan(g)).peak.count()) / 2869235560.0, 1, 0.01);
}

TEST(TrainingGraph, HasTheSizesOfKumarsTable1AsPrimitives) {
  struct Row {
    TrainingOptions options;
    double ops, edges;
  };
  for (const Row& row : {Row{primitives(at_depth(200, model("resnet")), Optimizer::kMomentum), 17705, 27312},
                         {primitives(model("ffn"), Optimizer::kSgd), 3217, 4447},
                         {primitives(model("transformer"), Optimizer::kAdam), 15842, 21771}}) {
    const Graph g = training_graph(row.options);
    EXPECT_NEAR(static_cast<double>(g.num_ops()) / row.ops, 1, 0.1) << g.name << " " << g.num_ops();
    EXPECT_NEAR(static_cast<double>(edges_between_ops(g)) / row.edges, 1, 0.15)
        << g.name << " " << edges_between_ops(g);
  }
}

TEST(TrainingGraph, UpdatesAsSoonAsAGradientIsThereAsPrimitives) {
  const Graph g = training_graph(primitives(model("ffn"), Optimizer::kMomentum));
  for (OpId op : g.ops()) {
    if (g.op_kind[op] != "momentum") continue;
    // Only other updates lie between an update and the last backward op that it reads from.
    OpId before(op.index() - 1);
    while (g.phase[before] == Phase::kUpdate) before = OpId(before.index() - 1);
    EXPECT_EQ(g.phase[before], Phase::kBackward);
    const auto reads = predecessors(g, op);
    EXPECT_NE(std::find(reads.begin(), reads.end(), before), reads.end()) << describe(g, op);
  }
}

TEST(TrainingGraph, KeepAllPeakGrowsLinearlyWithDepth) {
  double peak[3];
  for (int k : {0, 1, 2}) peak[k] = keep_all_gib(training_graph(at_depth(50 * (k + 1), model("ffn"))));
  EXPECT_NEAR((peak[2] - peak[1]) / (peak[1] - peak[0]), 1, 0.01);
}

using NameAndVariant = std::pair<std::string, std::string>;

class EveryModel : public ::testing::TestWithParam<NameAndVariant> {
 protected:
  TrainingOptions options() const { return model(GetParam().first, GetParam().second); }
};

std::vector<NameAndVariant> all_variants() {
  std::vector<NameAndVariant> names;
  for (const ModelInfo& m : models()) {
    for (const ModelInfo::Variant& v : m.variants) names.emplace_back(m.name, v.name);
  }
  return names;
}

std::string name_of(const ::testing::TestParamInfo<NameAndVariant>& tested) {
  return tested.param.first + (tested.param.second.empty() ? "" : "_" + tested.param.second);
}

INSTANTIATE_TEST_SUITE_P(All, EveryModel, ::testing::ValuesIn(all_variants()), name_of);

TEST_P(EveryModel, HasNoOpThatNothingDependsOn) {
  for (Granularity granularity : {Granularity::kOp, Granularity::kLayer, Granularity::kPrimitive}) {
    TrainingOptions o = options();
    o.granularity = granularity;
    const Graph g = training_graph(o);
    for (OpId op : g.ops()) {
      bool used = false;
      for (ValueId v : g.outputs[op]) used |= g.kept[v] || !g.readers[v].empty();
      EXPECT_TRUE(used) << describe(g, op);
    }
    for (ValueId v : g.graph_inputs) EXPECT_TRUE(!g.readers[v].empty()) << describe(g, v);
  }
}

TEST_P(EveryModel, PairsBackwardOpsWithForwardOps) {
  const Graph g = training_graph(options());
  std::size_t backward = 0, paired = 0;
  for (OpId op : g.ops()) {
    if (g.phase[op] != Phase::kBackward) {
      EXPECT_TRUE(g.forward_of[op].is_none()) << describe(g, op);
      continue;
    }
    ++backward;
    if (!g.forward_of[op]) continue;
    ++paired;
    EXPECT_TRUE(g.phase[g.forward_of[op]] == Phase::kForward || g.phase[g.forward_of[op]] == Phase::kLoss);
    EXPECT_LT(g.forward_of[op], op);
  }
  EXPECT_GT(backward, g.num_ops() / 2);
  // Ops without a pair: sums of the gradients of views of graph inputs.
  EXPECT_LE(backward - paired, 1u);
}

TEST_P(EveryModel, HoldsAsMuchByLayerAsByOp) {
  TrainingOptions o = options();
  const Graph by_op = training_graph(o);
  o.granularity = Granularity::kLayer;
  const Graph by_layer = training_graph(o);
  EXPECT_LT(by_layer.num_ops(), by_op.num_ops());
  EXPECT_EQ(by_layer.base_duration, by_op.base_duration);
  EXPECT_EQ(by_layer.resident, by_op.resident);
  // Inputs of a layer live through all of its ops, so a little more at most, and never less.
  EXPECT_GE(keep_all_gib(by_layer), keep_all_gib(by_op) * 0.9999);
  EXPECT_LE(keep_all_gib(by_layer), keep_all_gib(by_op) * 1.1);
}

TEST_P(EveryModel, KeepsWhatTheOptimizerMakes) {
  TrainingOptions o = options();
  const auto kept = [&](Optimizer optimizer) {
    o.optimizer = optimizer;
    return training_graph(o).graph_outputs.size();
  };
  const std::size_t gradients = kept(Optimizer::kNone);
  o.optimizer = Optimizer::kAdam;
  const Graph adam = training_graph(o);
  std::size_t updates = 0;
  for (OpId op : adam.ops()) {
    if (adam.op_kind[op] != "adam") continue;
    ++updates;
    EXPECT_FALSE(adam.recomputable[op]);
    EXPECT_EQ(adam.phase[op], Phase::kUpdate);
    EXPECT_EQ(adam.outputs[op].size(), 3u);
  }
  EXPECT_GT(updates, 0u);
  EXPECT_EQ(kept(Optimizer::kSgd), gradients);
  EXPECT_EQ(kept(Optimizer::kMomentum), gradients + updates);
  EXPECT_EQ(kept(Optimizer::kAdam), gradients + 2 * updates);
}

TEST(TrainingGraph, GivesOpsSeveralOutputsWhereTheyHaveThem) {
  const std::map<std::string, std::size_t, std::less<>> expected{
      {"batch_norm", 5}, {"batch_norm_grad", 3}, {"max_pool", 2},
      {"layer_norm", 3}, {"layer_norm_grad", 3}, {"dropout", 2},
      {"attention", 2},  {"attention_grad", 3},  {"nll_loss", 2}};
  std::set<std::string> seen;
  for (const char* name : {"resnet", "gpt"}) {
    const Graph g = training_graph(model(name));
    for (OpId op : g.ops()) {
      const auto entry = expected.find(g.op_kind[op]);
      if (entry == expected.end()) continue;
      seen.insert(entry->first);
      EXPECT_EQ(g.outputs[op].size(), entry->second) << describe(g, op);
    }
  }
  EXPECT_EQ(seen.size(), expected.size());
}

TEST(TrainingGraph, CanForbidToDrawRandomNumbersTwice) {
  TrainingOptions o = model("gpt");
  for (bool allowed : {true, false}) {
    o.random_recomputable = allowed;
    const Graph g = training_graph(o);
    for (OpId op : g.ops())
      EXPECT_EQ(g.recomputable[op], allowed || g.op_kind[op] != "dropout") << describe(g, op);
  }
}

TEST(TrainingGraph, ScalesActivationsWithTheBatch) {
  const Graph small = training_graph(at_batch(8, model("vgg")));
  const Graph large = training_graph(at_batch(16, model("vgg")));
  ASSERT_EQ(small.num_ops(), large.num_ops());
  const OpId first(0);
  EXPECT_EQ(2 * small.bytes[small.outputs[first][0]].count(), large.bytes[large.outputs[first][0]].count());
}

TEST(Cost, CountsTheMultiplicationsOfPublishedModels) {
  // Multiply-and-adds of a forward pass of one image, in billions.
  for (auto [depth, expected] : {std::pair{50, 4.09}, std::pair{101, 7.80}}) {
    generate::Program p;
    generate::build_resnet(p, {{1, 224, -1, depth, 64, -1, 1000, -1, -1}, "imagenet"});
    double flops = 0;
    for (generate::Node n : p.nodes.ids()) {
      const generate::Code code = p.nodes[n].code;
      if (code == generate::Code::kConv || code == generate::Code::kLinear)
        flops += generate::flop_count(p, n);
    }
    EXPECT_NEAR(flops / 2e9, expected, 0.02) << depth;
  }
}

TEST(Cost, RooflineIsTheSlowerOfComputingAndMoving) {
  generate::Program p;
  const generate::Tensor a = p.add_input(generate::Role::kBatch, {1000, 1000}, "a");
  const generate::Tensor c = p.emit(generate::Code::kDot, {a, a}, {1000, 1000});
  const generate::Node dot = p.tensors[c].producer;
  // 2e9 flops, 12e6 bytes.
  EXPECT_EQ(generate::roofline(p, dot, {"", 1e12, 1e11, 0}), Duration(2000000));
  EXPECT_EQ(generate::roofline(p, dot, {"", 1e15, 1e11, 0}), Duration(120000));
  EXPECT_EQ(generate::roofline(p, dot, {"", 1e15, 1e11, 5e-6}), Duration(125000));
}

TEST(Cost, ReadsDevicesByNameAndByNumbers) {
  EXPECT_EQ(parse_device("v100").flops_per_second, 15.7e12);
  const Device device = parse_device("flops=2e12,bandwidth=3e11,launch=1e-6");
  EXPECT_EQ(device.flops_per_second, 2e12);
  EXPECT_EQ(device.bytes_per_second, 3e11);
  EXPECT_EQ(device.launch_seconds, 1e-6);
  for (const char* bad : {"", "t9000", "flops=1e12", "flops=x,bandwidth=1", "flops=1,bandwidth=-1",
                          "flops=1,bandwidth=1,colour=2", "flops=inf,bandwidth=1"}) {
    EXPECT_NE(usage_error([&] { parse_device(bad); }).find("is none of cpu, p100"), std::string::npos) << bad;
  }
}

TEST(TrainingGraph, HasTwoBytesForAFloatInBf16AndKeepsMomentsAndRunningStatistics) {
  TrainingOptions o;
  o.model = "resnet";
  o.variant = "cifar";
  o.optimizer = Optimizer::kMomentum;
  o.device = parse_device("a100");
  const Graph wide = training_graph(o);
  o.dtype = DataType::kBf16;
  const Graph narrow = training_graph(o);
  ASSERT_EQ(narrow.num_ops(), wide.num_ops());
  EXPECT_EQ(narrow.name, wide.name + "_bf16");
  int halved = 0, same = 0;
  for (ValueId v : wide.values()) {
    const bool is_half = narrow.bytes[v].count() * 2 == wide.bytes[v].count();
    ASSERT_TRUE(is_half || narrow.bytes[v] == wide.bytes[v]) << v.index();
    (is_half ? halved : same) += 1;
    const bool is_moment = wide.value_name[v].find("moment") != std::string_view::npos;
    if (is_moment) {
      EXPECT_EQ(narrow.bytes[v], wide.bytes[v]) << wide.value_name[v];
    }
  }
  EXPECT_GT(halved, 4 * same / 5);
  EXPECT_GT(same, 0);
  EXPECT_LT(narrow.base_duration, wide.base_duration);
  o.device = parse_device("v100");
  EXPECT_EQ(usage_error([&] { training_graph(o); }).substr(0, 38), "device 'v100' has no rate for bf16; th");
  o.device = parse_device("flops=1e14,bandwidth=1e12");
  EXPECT_GT(training_graph(o).base_duration, Duration());
}

TEST(TrainingGraph, NamesWhatItCannotMake) {
  const auto error = [](auto&& change) {
    TrainingOptions o;
    change(o);
    return usage_error([&] { training_graph(o); });
  };
  EXPECT_EQ(error([](auto& o) { o.model = "alexnet"; }).substr(0, 40),
            "no model 'alexnet'; there are ffn, resne");
  EXPECT_EQ(error([](auto& o) { o.settings.heads = 4; }), "ffn has no setting 'heads'");
  EXPECT_EQ(error([](auto& o) { o.settings.batch = 0; }), "batch = 0 is outside [1, 1048576]");
  EXPECT_EQ(error([](auto& o) { o.variant = "big"; }), "ffn has no variant 'big'");
  EXPECT_EQ(error([](auto& o) {
              o.model = "gpt";
              o.settings.heads = 5;
            }),
            "width = 768 does not divide into heads = 5");
  EXPECT_EQ(error([](auto& o) {
              o.model = "unet";
              o.settings.resolution = 100;
            }),
            "resolution = 100 is not a multiple of 16");
  EXPECT_EQ(error([](auto& o) {
              o.model = "vgg";
              o.settings.depth = 12;
            }),
            "depth = 12 is none of 11, 13, 16, 19");
  EXPECT_EQ(error([](auto& o) {
              o.model = "gpt";
              o.settings.dropout = 1;
            }),
            "dropout = 1 is outside [0, 0.99]");
}

TEST(TrainingGraph, TakesTheDeepestResnets) {
  const TrainingOptions cifar = at_depth(1001, model("resnet", "cifar"));
  EXPECT_NEAR(static_cast<double>(parameter_count(cifar)), 10.2e6, 0.2e6);
  EXPECT_GT(training_graph(at_depth(1001, model("resnet"))).num_ops(), 6000u);
}

}  // namespace
}  // namespace remat
