// Classifiers of images besides ResNet.
#include <array>

#include "base/numbers.h"
#include "generate/checks.h"
#include "generate/layers.h"
#include "generate/models.h"

namespace remat::generate {
namespace {

Tensor images(Program& p, const ModelSettings& s) {
  return p.add_input(Role::kBatch, {s.batch, 3, s.resolution, s.resolution}, "images");
}

Tensor conv_relu(Program& p, std::string_view name, Tensor x, std::int64_t out, std::int64_t kernel,
                 const Window& window) {
  const Scope scope(p, name);
  return relu_layer(p, "relu", conv2d(p, "conv", x, out, kernel, window, true));
}

/// Throws UsageError unless `depth` is one of `known`.
template <class Table>
auto by_depth(const Table& table, std::int64_t depth) {
  std::string known;
  for (const auto& [key, value] : table) {
    if (key == depth) return value;
    known.append(known.empty() ? "" : ", ").append(std::to_string(key));
  }
  throw UsageError("depth = " + std::to_string(depth) + " is none of " + known);
}

Tensor googlenet_head(Program& p, std::string_view name, Tensor x, std::int64_t classes) {
  const Scope scope(p, name);
  const auto kernel = narrow<std::int32_t>(std::min<std::int64_t>(5, p.shape(x)[2]));
  x = conv_norm_relu(p, "conv", avg_pool(p, x, kernel, {3}), 128, 1);
  x = relu_layer(p, "relu", dense(p, "fc", flatten(p, x), 1024));
  return dense(p, "head", dropout_layer(p, "dropout", x, 0.7), classes);
}

}  // namespace

/// Simonyan and Zisserman (2014): five stages of 3x3 convolutions, three dense layers.
Tensor build_vgg(Program& p, const Recipe& r) {
  const ModelSettings& s = r.size;
  using Counts = std::array<int, 5>;
  static const std::array<std::pair<std::int64_t, Counts>, 4> kConvolutions{
      {{11, {1, 1, 2, 2, 2}}, {13, {2, 2, 2, 2, 2}}, {16, {2, 2, 3, 3, 3}}, {19, {2, 2, 4, 4, 4}}}};
  const Counts counts = by_depth(kConvolutions, s.depth);
  require_between<std::int64_t>("resolution", s.resolution, 32, 1 << 16);
  Tensor x = images(p, s);
  for (int stage = 0; stage < 5; ++stage) {
    const Scope scope(p, "stage" + std::to_string(stage + 1));
    const std::int64_t channels = s.width << std::min(stage, 3);
    for (int i = 0; i < counts[at(stage)]; ++i) x = conv_relu(p, std::to_string(i), x, channels, 3, {1, 1});
    x = max_pool_2d(p, "pool", x, 2, {2});
  }
  x = flatten(p, x);
  for (int i = 0; i < 2; ++i) {
    const Scope scope(p, "classifier." + std::to_string(i));
    x = relu_layer(p, "relu", dense(p, "dense", x, 64 * s.width));
    x = dropout_layer(p, "dropout", x, s.dropout);
  }
  return cross_entropy_loss(p, dense(p, "head", x, s.classes));
}

/// Huang et al. (2016): every layer reads all earlier ones of its block. `width` is the growth.
Tensor build_densenet(Program& p, const Recipe& r) {
  const ModelSettings& s = r.size;
  using Counts = std::array<int, 4>;
  static const std::array<std::pair<std::int64_t, Counts>, 4> kLayers{
      {{121, {6, 12, 24, 16}}, {161, {6, 12, 36, 24}}, {169, {6, 12, 32, 32}}, {201, {6, 12, 48, 32}}}};
  const Counts counts = by_depth(kLayers, s.depth);
  require_between<std::int64_t>("resolution", s.resolution, 32, 1 << 16);
  Tensor x = conv_norm_relu(p, "stem", images(p, s), 2 * s.width, 7, {2, 3});
  x = max_pool_2d(p, "pool", x, 3, {2, 1});
  const auto norm_relu_conv = [&](std::string_view name, Tensor y, std::int64_t out, std::int64_t kernel) {
    const Scope scope(p, name);
    y = relu_layer(p, "relu", batch_norm_2d(p, "norm", y));
    return conv2d(p, "conv", y, out, kernel, {1, narrow<std::int32_t>(kernel / 2)});
  };
  for (std::size_t block = 0; block < 4; ++block) {
    const Scope scope(p, "block" + std::to_string(block + 1));
    std::vector<Tensor> parts{x};
    for (int i = 0; i < counts[block]; ++i) {
      const Scope layer(p, std::to_string(i));
      const Tensor all = parts.size() == 1 ? x : concat_layer(p, "concat", parts, 1);
      parts.push_back(norm_relu_conv("b", norm_relu_conv("a", all, 4 * s.width, 1), s.width, 3));
    }
    x = concat_layer(p, "concat", parts, 1);
    if (block == 3) break;
    x = norm_relu_conv("transition", x, p.shape(x)[1] / 2, 1);
    x = avg_pool(p, x, 2, {2});
  }
  x = relu_layer(p, "relu", batch_norm_2d(p, "norm", x));
  return cross_entropy_loss(p, dense(p, "head", global_average(p, "average", x), s.classes));
}

/// Szegedy et al. (2014), with batch normalisation; the variant `auxiliary` has the two heads that only
/// training uses, each with three tenths of the weight.
Tensor build_googlenet(Program& p, const Recipe& r) {
  const ModelSettings& s = r.size;
  require_between<std::int64_t>("resolution", s.resolution, 32, 1 << 16);
  const auto inception = [&](std::string_view name, Tensor x, std::array<std::int64_t, 6> c) {
    const Scope scope(p, name);
    const Tensor one = conv_norm_relu(p, "one", x, c[0], 1);
    const Tensor three =
        conv_norm_relu(p, "three", conv_norm_relu(p, "three_reduce", x, c[1], 1), c[2], 3, {1, 1});
    const Tensor five =
        conv_norm_relu(p, "five", conv_norm_relu(p, "five_reduce", x, c[3], 1), c[4], 5, {1, 2});
    const Tensor pooled = conv_norm_relu(p, "pooled", max_pool_2d(p, "pool", x, 3, {1, 1}), c[5], 1);
    return concat_layer(p, "concat", std::array{one, three, five, pooled}, 1);
  };
  Tensor x = conv_norm_relu(p, "conv1", images(p, s), 64, 7, {2, 3});
  x = max_pool_2d(p, "pool1", x, 3, {2, 1});
  x = conv_norm_relu(p, "conv3", conv_norm_relu(p, "conv2", x, 64, 1), 192, 3, {1, 1});
  x = max_pool_2d(p, "pool2", x, 3, {2, 1});
  x = inception("3a", x, {64, 96, 128, 16, 32, 32});
  x = inception("3b", x, {128, 128, 192, 32, 96, 64});
  x = max_pool_2d(p, "pool3", x, 3, {2, 1});
  x = inception("4a", x, {192, 96, 208, 16, 48, 64});
  std::vector<Tensor> auxiliary;
  const auto add_head = [&](std::string_view name) {
    if (r.variant == "auxiliary") auxiliary.push_back(googlenet_head(p, name, x, s.classes));
  };
  add_head("auxiliary1");
  x = inception("4b", x, {160, 112, 224, 24, 64, 64});
  x = inception("4c", x, {128, 128, 256, 24, 64, 64});
  x = inception("4d", x, {112, 144, 288, 32, 64, 64});
  add_head("auxiliary2");
  x = inception("4e", x, {256, 160, 320, 32, 128, 128});
  x = max_pool_2d(p, "pool4", x, 3, {2, 1});
  x = inception("5a", x, {256, 160, 320, 32, 128, 128});
  x = inception("5b", x, {384, 192, 384, 48, 128, 128});
  x = dropout_layer(p, "dropout", global_average(p, "average", x), s.dropout);
  const Tensor logits = dense(p, "head", x, s.classes), labels = label_input(p, s.batch);
  Tensor loss = cross_entropy_loss(p, logits, labels);
  for (Tensor head : auxiliary) loss = add_auxiliary_loss(p, loss, cross_entropy_loss(p, head, labels), 0.3);
  return loss;
}

/// Howard et al. (2017), version 1: depthwise and pointwise convolutions in turn.
Tensor build_mobilenet(Program& p, const Recipe& r) {
  const ModelSettings& s = r.size;
  struct Step {
    std::int64_t factor;
    std::int32_t stride;
  };
  static constexpr std::array<Step, 13> kSteps{{{2, 1},
                                                {4, 2},
                                                {4, 1},
                                                {8, 2},
                                                {8, 1},
                                                {16, 2},
                                                {16, 1},
                                                {16, 1},
                                                {16, 1},
                                                {16, 1},
                                                {16, 1},
                                                {32, 2},
                                                {32, 1}}};
  Tensor x = conv_norm_relu(p, "stem", images(p, s), s.width, 3, {2, 1}, 6);
  int index = 0;
  for (const Step& step : kSteps) {
    const Scope scope(p, "blocks." + std::to_string(index++));
    const std::int64_t channels = p.shape(x)[1];
    x = conv_norm_relu(p, "depthwise", x, channels, 3, {step.stride, 1, 1, narrow<std::int32_t>(channels)},
                       6);
    x = conv_norm_relu(p, "pointwise", x, step.factor * s.width, 1, {}, 6);
  }
  return cross_entropy_loss(p, dense(p, "head", global_average(p, "average", x), s.classes));
}

}  // namespace remat::generate
