// Gradients of generated programs against central differences, for every layer and for whole models.
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <set>

#include "generate/autodiff.h"
#include "generate/interpreter.h"
#include "generate/layers.h"
#include "generate/models.h"
#include "remat/random.h"

namespace remat::generate {
namespace {

using testing::Interpreter;

using Build = std::function<Tensor(Program&)>;

void set_inputs(Interpreter& run, Random& random) {
  const Program& p = run.p;
  const auto fill = [&](Tensor t) {
    Interpreter::Values values(static_cast<std::size_t>(p.shape(t).elements()));
    // Inputs of eight bytes are labels and ids.
    for (double& v : values)
      v = p.tensors[t].element_bytes == 8 ? static_cast<double>(random.below(3)) : 2 * random.unit() - 1;
    run.set(t, values);
  };
  for (Tensor t : p.program_inputs) fill(t);
  for (Tensor t : p.parameters) fill(t);
}

/// Compares up to `samples` elements of each gradient.
void check_gradients(const Build& build, Dialect dialect, int samples = 12) {
  Program p(dialect);
  const Tensor loss = build(p);
  ASSERT_EQ(p.shape(loss).rank, 0);
  const std::size_t forward = p.nodes.size();
  const std::vector<Tensor> gradients = differentiate(p, loss);
  Random random(5);
  Interpreter run(p);
  set_inputs(run, random);
  run.run(p.nodes.size());
  const auto exact = run.data;
  ASSERT_TRUE(std::isfinite(exact[loss][0]));
  ASSERT_EQ(gradients.size(), p.parameters.size());
  constexpr double kStep = 1e-5;
  for (std::size_t k = 0; k < gradients.size(); ++k) {
    ASSERT_TRUE(gradients[k]) << p.parameter_names[k];
    ASSERT_EQ(p.shape(gradients[k]), p.shape(p.parameters[k])) << p.parameter_names[k];
    const auto size = static_cast<std::int64_t>(exact[gradients[k]].size());
    for (int s = 0; s < samples && s < size; ++s) {
      const auto i = static_cast<std::size_t>(size <= samples ? s : random.below(size));
      Interpreter::Values values = exact[p.parameters[k]];
      double losses[2];
      for (int side : {0, 1}) {
        values[i] = exact[p.parameters[k]][i] + (side == 0 ? -kStep : kStep);
        run.set(p.parameters[k], values);
        run.run(forward);
        losses[side] = run.data[loss][0];
      }
      run.set(p.parameters[k], exact[p.parameters[k]]);
      const double expected = (losses[1] - losses[0]) / (2 * kStep), got = exact[gradients[k]][i];
      EXPECT_NEAR(got, expected, 1e-6 + 1e-4 * std::abs(expected))
          << p.parameter_names[k] << " element " << i;
    }
  }
}

/// A loss in which every element of x counts differently.
Tensor weighted_loss(Program& p, Tensor x) {
  return mse_layer(p, x, p.add_input(Role::kBatch, p.shape(x), "target"));
}

struct LayerCase {
  std::string name;
  Build build;
};

void PrintTo(const LayerCase& c, std::ostream* out) { *out << c.name; }

/// A layer between a trainable x and the loss, so that the gradient of its input is checked too.
LayerCase layer(std::string name, const Shape& shape, std::function<Tensor(Program&, Tensor)> apply) {
  return {std::move(name),
          [shape, apply](Program& p) { return weighted_loss(p, apply(p, parameter(p, "x", shape))); }};
}

Tensor attend(Program& p, Tensor x, bool fused, bool causal, double dropout) {
  const Tensor mask = fused ? Tensor::none() : p.add_input(Role::kBatch, {2, 1, 1, 3}, "mask");
  const Tensor memory = causal ? x : parameter(p, "memory", {2, 3, 4});
  return multi_head_attention(p, "attention", x, memory, mask, {2, causal, fused, fused, dropout});
}

std::vector<LayerCase> layer_cases() {
  const Shape image{2, 3, 5, 5}, rows{4, 6}, tokens{2, 3, 4};
  return {
      layer("dense", rows, [](Program& p, Tensor x) { return dense(p, "d", x, 3); }),
      layer("dense_without_bias", rows, [](Program& p, Tensor x) { return dense(p, "d", x, 3, false); }),
      layer("dense_last", tokens, [](Program& p, Tensor x) { return dense_last(p, "d", x, 5); }),
      layer("relu", rows, [](Program& p, Tensor x) { return relu_layer(p, "r", scale(p, x, 9), 6); }),
      layer("gelu", rows, [](Program& p, Tensor x) { return gelu_layer(p, "g", x); }),
      layer("dropout", rows, [](Program& p, Tensor x) { return dropout_layer(p, "d", x, 0.4); }),
      layer("conv", image, [](Program& p, Tensor x) { return conv2d(p, "c", x, 4, 3, {2, 1}, true); }),
      layer("conv_dilated", image, [](Program& p, Tensor x) { return conv2d(p, "c", x, 2, 3, {1, 2, 2}); }),
      layer("conv_depthwise", image,
            [](Program& p, Tensor x) { return conv2d(p, "c", x, 3, 3, {1, 1, 1, 3}); }),
      layer("conv_grouped", {2, 4, 4, 4},
            [](Program& p, Tensor x) { return conv2d(p, "c", x, 6, 3, {1, 1, 1, 2}); }),
      layer("conv_transpose", image,
            [](Program& p, Tensor x) { return conv2d_transpose(p, "c", x, 2, 4, {2, 1}); }),
      layer("batch_norm", image, [](Program& p, Tensor x) { return batch_norm_2d(p, "b", x); }),
      layer("layer_norm", tokens, [](Program& p, Tensor x) { return layer_norm_last(p, "l", x); }),
      layer("max_pool", image, [](Program& p, Tensor x) { return max_pool_2d(p, "m", x, 3, {2, 1}); }),
      layer("avg_pool", image, [](Program& p, Tensor x) { return avg_pool(p, x, 3, {2}); }),
      layer("global_average", image, [](Program& p, Tensor x) { return global_average(p, "g", x); }),
      layer("resize", image, [](Program& p, Tensor x) { return resize_layer(p, "r", x, 8, 7); }),
      layer("unpool", {2, 3, 4, 4},
            [](Program& p, Tensor x) {
              const Pooled pooled = max_pool(p, x, 2, {2});
              return unpool(p, pooled.y, pooled.indices, {2, 3, 4, 4});
            }),
      layer("concat", image,
            [](Program& p, Tensor x) {
              const Tensor parts[] = {x, parameter(p, "y", {2, 2, 5, 5}), x};
              return concat_layer(p, "c", parts, 1);
            }),
      layer("slice", rows, [](Program& p, Tensor x) { return slice(p, x, 1, 2, 3); }),
      layer("transpose", {2, 3, 4, 5}, [](Program& p, Tensor x) { return transpose(p, x, {2, 0, 3, 1}); }),
      layer("softmax", rows, [](Program& p, Tensor x) { return softmax(p, x); }),
      layer("stretched_arithmetic", {2, 1, 4},
            [](Program& p, Tensor x) {
              const Tensor y = parameter(p, "y", {3, 1});
              const Tensor z = binary(p, Code::kDiv, binary(p, Code::kMul, x, y),
                                      binary(p, Code::kAdd, unary(p, Code::kSquare, y), constant(p, 2)));
              return binary(p, Code::kSub, z, unary(p, Code::kNeg, y));
            }),
      layer("rsqrt", rows,
            [](Program& p, Tensor x) {
              return unary(p, Code::kRsqrt,
                           binary(p, Code::kAdd, unary(p, Code::kSquare, x), constant(p, 0.5)));
            }),
      layer("sums", {2, 3, 4},
            [](Program& p, Tensor x) {
              const Tensor sum = reduce(p, Code::kReduceSum, x, 0b010);
              return binary(p, Code::kMul, broadcast_to(p, sum, {2, 3, 4}), sum_to(p, x, {3, 1}));
            }),
      layer("dots", {2, 3, 4},
            [](Program& p, Tensor x) {
              const Tensor a = dot(p, x, parameter(p, "a", {2, 4, 2})),
                           b = dot(p, x, parameter(p, "b", {2, 2, 4}), false, true);
              const Tensor c = dot(p, parameter(p, "c", {2, 3, 3}), a, true),
                           d = dot(p, parameter(p, "d", {2, 2, 3}), parameter(p, "e", {2, 2, 2}), true, true);
              return binary(p, Code::kAdd, binary(p, Code::kMul, a, b), binary(p, Code::kMul, c, d));
            }),
      layer("identity", rows, [](Program& p, Tensor x) { return unary(p, Code::kIdentity, x); }),
      layer(
          "embedding", {5, 4},
          [](Program& p, Tensor x) { return embedding(p, x, p.add_input(Role::kBatch, {2, 6}, "ids", 8)); }),
      layer("attention", tokens, [](Program& p, Tensor x) { return attend(p, x, false, true, 0.3); }),
      layer("attention_across", tokens, [](Program& p, Tensor x) { return attend(p, x, false, false, 0); }),
      layer("attention_fused", tokens, [](Program& p, Tensor x) { return attend(p, x, true, false, 0); }),
      layer("attention_fused_causal", tokens,
            [](Program& p, Tensor x) { return attend(p, x, true, true, 0); }),
      layer("spectral", {2, 2, 6, 6},
            [](Program& p, Tensor x) {
              return irfft(p, mode_mix(p, rfft(p, x), parameter(p, "weight", {2, 3, 4, 2, 2}), 6), 6);
            }),
      layer("spectral_to_less", {2, 2, 8, 8},
            [](Program& p, Tensor x) {
              return irfft(p, mode_mix(p, rfft(p, x), parameter(p, "weight", {2, 3, 4, 2, 2}), 4), 4);
            }),
      layer("spectral_to_more", {2, 2, 4, 4},
            [](Program& p, Tensor x) {
              return irfft(p, mode_mix(p, rfft(p, x), parameter(p, "weight", {2, 3, 4, 2, 2}), 7), 7);
            }),
      layer("spectral_1d", {2, 2, 7},
            [](Program& p, Tensor x) {
              return irfft(p, mode_mix(p, rfft(p, x), parameter(p, "weight", {2, 3, 2, 2}), 7), 7);
            }),
      layer("spectral_3d", {1, 2, 4, 6, 4},
            [](Program& p, Tensor x) {
              return irfft(p, mode_mix(p, rfft(p, x), parameter(p, "weight", {2, 2, 4, 4, 2, 2}), 4), 4);
            }),
      layer("spectral_odd", {1, 1, 4, 5}, [](Program& p, Tensor x) { return irfft(p, rfft(p, x), 5); }),
      layer("read_by_three", rows,
            [](Program& p, Tensor x) {
              return binary(p, Code::kMul, binary(p, Code::kAdd, x, unary(p, Code::kSquare, x)), x);
            }),
      {"cross_entropy", [](Program& p) { return cross_entropy_loss(p, parameter(p, "x", {4, 3})); }},
      {"pixel_cross_entropy",
       [](Program& p) { return pixel_cross_entropy_loss(p, parameter(p, "x", {2, 3, 2, 2})); }},
      {"auxiliary_loss",
       [](Program& p) {
         const Tensor x = parameter(p, "x", {4, 3}), labels = label_input(p, 4);
         const Tensor loss = cross_entropy_loss(p, x, labels);
         return add_auxiliary_loss(p, loss, cross_entropy_loss(p, gelu_layer(p, "gelu", x), labels), 0.3);
       }},
      {"l2_loss", [](Program& p) { return p.emit(Code::kL2Loss, {parameter(p, "x", {4, 3})}, Shape{}); }},
  };
}

class LayerGradients : public ::testing::TestWithParam<std::tuple<LayerCase, Dialect>> {};

TEST_P(LayerGradients, EqualCentralDifferences) {
  check_gradients(std::get<0>(GetParam()).build, std::get<1>(GetParam()));
}

INSTANTIATE_TEST_SUITE_P(All, LayerGradients,
                         ::testing::Combine(::testing::ValuesIn(layer_cases()),
                                            ::testing::Values(Dialect::kKernels, Dialect::kPrimitives)),
                         [](const auto& tested) {
                           return std::get<0>(tested.param).name +
                                  (std::get<1>(tested.param) == Dialect::kKernels ? "_kernels"
                                                                                  : "_primitives");
                         });

struct ModelCase {
  std::string name;
  Tensor (*build)(Program&, const Recipe&);
  ModelSettings size;
  std::string_view variant;
};

void PrintTo(const ModelCase& c, std::ostream* out) { *out << c.name; }

class ModelGradients : public ::testing::TestWithParam<std::tuple<ModelCase, Dialect>> {};

TEST_P(ModelGradients, EqualCentralDifferences) {
  const ModelCase& c = std::get<0>(GetParam());
  check_gradients([&](Program& p) { return c.build(p, {c.size, c.variant, true}); }, std::get<1>(GetParam()),
                  1);
}

// batch, resolution, sequence, depth, width, heads, classes, vocabulary, dropout.
INSTANTIATE_TEST_SUITE_P(
    All, ModelGradients,
    ::testing::Combine(
        ::testing::Values(ModelCase{"ffn", build_ffn, {2, -1, -1, 3, 4, -1, 3, -1, -1}, ""},
                          ModelCase{"resnet", build_resnet, {3, 8, -1, 8, 2, -1, 3, -1, -1}, "cifar"},
                          ModelCase{"unet", build_unet, {2, 8, -1, 2, 2, -1, 3, -1, -1}, ""},
                          ModelCase{"mlp_mixer", build_mlp_mixer, {1, 32, -1, 1, 4, -1, 3, -1, -1}, ""},
                          ModelCase{"fno", build_fno, {1, 6, -1, 2, 2, 2, 1, -1, -1}, "2d"},
                          ModelCase{"fno_1d", build_fno, {2, 8, -1, 2, 2, 2, 1, -1, -1}, "1d"},
                          ModelCase{"fno_3d", build_fno, {1, 4, -1, 1, 2, 1, 1, -1, -1}, "3d"},
                          ModelCase{"ufno", build_ufno, {1, 8, -1, 2, 2, 2, 1, -1, -1}, ""},
                          ModelCase{"uno", build_uno, {1, 8, -1, 1, 2, 2, 1, -1, -1}, ""},
                          ModelCase{
                              "transformer", build_transformer, {2, -1, 3, 1, 4, 2, -1, 5, 0.1}, "base"},
                          ModelCase{"gpt", build_gpt, {2, -1, 3, 1, 4, 2, -1, 5, 0.1}, "small"}),
        ::testing::Values(Dialect::kKernels, Dialect::kPrimitives)),
    [](const auto& tested) {
      return std::get<0>(tested.param).name +
             (std::get<1>(tested.param) == Dialect::kKernels ? "_kernels" : "_primitives");
    });

/// Codes of the ops that differentiating a program differentiates.
std::set<Code> differentiated_codes(const Build& build, Dialect dialect) {
  Program p(dialect);
  differentiate(p, build(p));
  std::set<Code> codes;
  for (Node n : p.nodes.ids()) {
    if (p.nodes[n].forward_of) codes.insert(p.nodes[p.nodes[n].forward_of].code);
  }
  return codes;
}

TEST(Gradients, OfEveryOpThatAModelHoldsAreCheckedAbove) {
  const std::vector<std::pair<Tensor (*)(Program&, const Recipe&), ModelSettings>> cases{
      {build_vgg, {1, 32, -1, 11, 1, -1, 3, -1, 0.5}},
      {build_densenet, {1, 32, -1, 121, 2, -1, 3, -1, -1}},
      {build_googlenet, {1, 32, -1, -1, -1, -1, 3, -1, 0.2}},
      {build_mobilenet, {1, 32, -1, -1, 4, -1, 3, -1, -1}},
      {build_unet, {1, 16, -1, 2, 2, -1, 3, -1, -1}},
      {build_pspnet, {1, 64, -1, 50, 4, -1, 3, -1, 0.1}},
      {build_fcn8, {1, 32, -1, -1, 2, -1, 3, -1, 0.5}},
      {build_segnet, {1, 32, -1, -1, 2, -1, 3, -1, -1}},
      {build_mlp_mixer, {1, 32, -1, 1, 4, -1, 3, -1, -1}},
      {build_fno, {1, 6, -1, 1, 2, 2, 1, -1, -1}},
      {build_ufno, {1, 8, -1, 2, 2, 2, 1, -1, -1}},
      {build_uno, {1, 8, -1, 1, 2, 2, 1, -1, -1}},
      {build_regnet, {1, 32, -1, -1, -1, -1, 3, -1, -1}},
      {build_transformer, {1, -1, 3, 1, 4, 2, -1, 5, 0.1}},
      {build_gpt, {1, -1, 3, 1, 4, 2, -1, 5, 0.1}},
      {build_ffn, {1, -1, -1, 1, 2, -1, 2, -1, -1}},
      {build_resnet, {1, 32, -1, 18, 2, -1, 3, -1, -1}}};
  for (Dialect dialect : {Dialect::kKernels, Dialect::kPrimitives}) {
    std::set<Code> checked;
    for (const LayerCase& c : layer_cases()) checked.merge(differentiated_codes(c.build, dialect));
    for (const auto& [build, size] : cases) {
      for (std::string_view variant : {"", "auxiliary"}) {
        for (Code code :
             differentiated_codes([&](Program& p) { return build(p, {size, variant, true}); }, dialect)) {
          EXPECT_TRUE(checked.contains(code)) << to_string(code);
        }
      }
    }
  }
}

TEST(Gradients, OfAParameterThatTheLossDoesNotReadIsNone) {
  Program p;
  const Tensor x = parameter(p, "x", {2, 2});
  parameter(p, "unread", {3});
  const std::vector<Tensor> gradients = differentiate(p, weighted_loss(p, x));
  EXPECT_TRUE(gradients[0]);
  EXPECT_FALSE(gradients[1]);
}

TEST(Gradients, BackwardOpsFollowTheReverseOrderOfTheirForwardOps) {
  Program p;
  const Tensor loss = build_resnet(p, {{2, 8, -1, 8, 2, -1, 3, -1, -1}, "cifar"});
  const std::size_t forward = p.nodes.size();
  differentiate(p, loss);
  Node before(static_cast<std::int64_t>(forward));
  for (auto i = static_cast<std::int64_t>(forward); i < static_cast<std::int64_t>(p.nodes.size()); ++i) {
    const NodeInfo& info = p.nodes[Node(i)];
    EXPECT_EQ(info.phase, Phase::kBackward);
    ASSERT_TRUE(info.forward_of);
    EXPECT_LE(info.forward_of, before);
    EXPECT_EQ(info.module, p.nodes[info.forward_of].module);
    before = info.forward_of;
  }
}

}  // namespace
}  // namespace remat::generate
