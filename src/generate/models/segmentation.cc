// Models that label every pixel.
#include <array>

#include "base/numbers.h"
#include "generate/checks.h"
#include "generate/layers.h"
#include "generate/models.h"

namespace remat::generate {
namespace {

Tensor images(Program& p, const ModelSettings& s, std::int64_t multiple) {
  if (s.resolution % multiple != 0) {
    throw UsageError("resolution = " + std::to_string(s.resolution) + " is not a multiple of " +
                     std::to_string(multiple));
  }
  return p.add_input(Role::kBatch, {s.batch, 3, s.resolution, s.resolution}, "images");
}

constexpr std::array<int, 5> kVgg16{2, 2, 3, 3, 3};

Tensor vgg_stage(Program& p, Tensor x, int stage, std::int64_t width) {
  const std::int64_t channels = width << std::min(stage, 3);
  for (int i = 0; i < kVgg16[at(stage)]; ++i) {
    const Scope scope(p, std::to_string(i));
    x = relu_layer(p, "relu", conv2d(p, "conv", x, channels, 3, {1, 1}, true));
  }
  return x;
}

}  // namespace

/// Ronneberger et al. (2015), padded so that sizes stay, with batch normalisation. `depth` counts the
/// halvings.
Tensor build_unet(Program& p, const Recipe& r) {
  const ModelSettings& s = r.size;
  require_between<std::int64_t>("depth", s.depth, 1, 8);
  Tensor x = images(p, s, std::int64_t{1} << s.depth);
  const auto twice = [&](Tensor y, std::int64_t channels) {
    y = conv_norm_relu(p, "a", y, channels, 3, {1, 1});
    return conv_norm_relu(p, "b", y, channels, 3, {1, 1});
  };
  std::vector<Tensor> skips;
  for (std::int64_t level = 0; level < s.depth; ++level) {
    const Scope scope(p, "down" + std::to_string(level));
    x = twice(x, s.width << level);
    skips.push_back(x);
    x = max_pool_2d(p, "pool", x, 2, {2});
  }
  {
    const Scope scope(p, "bottom");
    x = twice(x, s.width << s.depth);
  }
  for (std::int64_t level = s.depth - 1; level >= 0; --level) {
    const Scope scope(p, "up" + std::to_string(level));
    const std::int64_t channels = s.width << level;
    x = conv2d_transpose(p, "up", x, channels, 2, {2});
    const Tensor both[] = {skips[at(level)], x};
    x = twice(concat_layer(p, "concat", both, 1), channels);
  }
  return pixel_cross_entropy_loss(p, conv2d(p, "head", x, s.classes, 1, {}, true));
}

/// Zhao et al. (2016): a ResNet with dilated last stages, averages over 1, 2, 3 and 6 bins a side. The
/// variant `auxiliary` has the head on the third stage that only training uses, with 0.4 of the weight.
Tensor build_pspnet(Program& p, const Recipe& r) {
  const ModelSettings& s = r.size;
  require_between<std::int64_t>("resolution", s.resolution, 48, 1 << 16);
  Tensor third;
  Tensor x = resnet_trunk(p, images(p, s, 1), resnet_stages(s.depth), s.width, true, &third);
  const auto score = [&](Tensor y, std::int64_t inner) {
    y = dropout_layer(p, "dropout", conv_norm_relu(p, "fuse", y, inner, 3, {1, 1}), s.dropout);
    y = conv2d(p, "head", y, s.classes, 1, {}, true);
    return resize_layer(p, "resize", y, s.resolution, s.resolution);
  };
  Tensor auxiliary;
  if (r.variant == "auxiliary") {
    const Scope scope(p, "auxiliary");
    auxiliary = score(third, p.shape(third)[1] / 4);
  }
  const std::int64_t size = p.shape(x)[2], channels = p.shape(x)[1];
  std::vector<Tensor> parts{x};
  for (std::int64_t bins : {1, 2, 3, 6}) {
    const Scope scope(p, "pyramid" + std::to_string(bins));
    const std::int64_t stride = size / bins, kernel = size - (bins - 1) * stride;
    Tensor y = avg_pool(p, x, narrow<std::int32_t>(kernel), {narrow<std::int32_t>(stride)});
    y = conv_norm_relu(p, "conv", y, channels / 4, 1);
    parts.push_back(resize_layer(p, "resize", y, size, size));
  }
  x = score(concat_layer(p, "concat", parts, 1), channels / 4);
  const Tensor labels = label_input(p, s.batch * s.resolution * s.resolution);
  const Tensor loss = pixel_cross_entropy_loss(p, x, labels);
  if (!auxiliary) return loss;
  return add_auxiliary_loss(p, loss, pixel_cross_entropy_loss(p, auxiliary, labels), 0.4);
}

/// Long et al. (2014) on VGG16: scores of the third and fourth pooling join on the way up.
Tensor build_fcn8(Program& p, const Recipe& r) {
  const ModelSettings& s = r.size;
  Tensor x = images(p, s, 32);
  std::array<Tensor, 5> pooled;
  for (int stage = 0; stage < 5; ++stage) {
    const Scope scope(p, "stage" + std::to_string(stage + 1));
    x = max_pool_2d(p, "pool", vgg_stage(p, x, stage, s.width), 2, {2});
    pooled[at(stage)] = x;
  }
  for (int i = 0; i < 2; ++i) {
    const Scope scope(p, "fc" + std::to_string(6 + i));
    x = relu_layer(p, "relu", conv2d(p, "conv", x, 64 * s.width, i == 0 ? 7 : 1, {1, i == 0 ? 3 : 0}, true));
    x = dropout_layer(p, "dropout", x, s.dropout);
  }
  x = conv2d(p, "score", x, s.classes, 1, {}, true);
  for (int stage : {3, 2}) {
    const Scope scope(p, "up" + std::to_string(stage + 1));
    x = conv2d_transpose(p, "up", x, s.classes, 4, {2, 1}, false);
    x = add_layer(p, "add", x, conv2d(p, "score", pooled[at(stage)], s.classes, 1, {}, true));
  }
  x = conv2d_transpose(p, "up", x, s.classes, 16, {8, 4}, false);
  return pixel_cross_entropy_loss(p, x);
}

/// Badrinarayanan et al. (2015): the decoder undoes each pooling at the indices of the encoder.
Tensor build_segnet(Program& p, const Recipe& r) {
  const ModelSettings& s = r.size;
  Tensor x = images(p, s, 32);
  struct Level {
    Tensor indices;
    Shape size;
  };
  std::vector<Level> levels;
  for (int stage = 0; stage < 5; ++stage) {
    const Scope scope(p, "encoder" + std::to_string(stage + 1));
    const std::int64_t channels = s.width << std::min(stage, 3);
    for (int i = 0; i < kVgg16[at(stage)]; ++i)
      x = conv_norm_relu(p, std::to_string(i), x, channels, 3, {1, 1});
    const Scope pool(p, "pool");
    const Shape size = p.shape(x);
    const Pooled pooled = max_pool(p, x, 2, {2});
    levels.push_back({pooled.indices, size});
    x = pooled.y;
  }
  for (int stage = 4; stage >= 0; --stage) {
    const Scope scope(p, "decoder" + std::to_string(stage + 1));
    const Level& level = levels[at(stage)];
    {
      const Scope inner(p, "unpool");
      x = unpool(p, x, level.indices, level.size);
    }
    const int count = kVgg16[at(stage)];
    for (int i = 0; i < count; ++i) {
      const std::int64_t channels = s.width << std::min(i + 1 < count ? stage : std::max(stage - 1, 0), 3);
      x = conv_norm_relu(p, std::to_string(i), x, channels, 3, {1, 1});
    }
  }
  return pixel_cross_entropy_loss(p, conv2d(p, "head", x, s.classes, 1, {}, true));
}

}  // namespace remat::generate
