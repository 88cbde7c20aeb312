// He et al., Deep Residual Learning (2015): ImageNet and CIFAR forms, any depth that divides into blocks.

#include "base/numbers.h"
#include "generate/checks.h"
#include "generate/layers.h"
#include "generate/models.h"

namespace remat::generate {
namespace {

struct Block {
  std::int64_t channels;  ///< of the inner convolutions
  std::int32_t stride;
  std::int32_t dilation;
  bool bottleneck;
};

Tensor residual_block(Program& p, std::string_view name, Tensor x, const Block& b) {
  const Scope scope(p, name);
  const std::int64_t out = b.bottleneck ? 4 * b.channels : b.channels;
  const Window middle{b.stride, b.dilation, b.dilation};
  Tensor y;
  if (b.bottleneck) {
    y = conv_norm_relu(p, "a", x, b.channels, 1);
    y = conv_norm_relu(p, "b", y, b.channels, 3, middle);
    y = batch_norm_2d(p, "norm", conv2d(p, "conv", y, out, 1));
  } else {
    y = conv_norm_relu(p, "a", x, b.channels, 3, middle);
    y = batch_norm_2d(p, "norm", conv2d(p, "conv", y, out, 3, {1, 1}));
  }
  if (b.stride != 1 || p.shape(x)[1] != out) {
    const Scope shortcut(p, "shortcut");
    x = batch_norm_2d(p, "norm", conv2d(p, "conv", x, out, 1, {b.stride}));
  }
  return relu_layer(p, "relu", add_layer(p, "add", y, x));
}

Tensor residual_stage(Program& p, std::string_view name, Tensor x, std::int64_t blocks, Block block) {
  const Scope scope(p, name);
  for (std::int64_t i = 0; i < blocks; ++i) {
    x = residual_block(p, std::to_string(i), x, block);
    block.stride = 1;
  }
  return x;
}

/// TensorFlow's official model adds the weight decay to the loss, normalisation left out.
Tensor with_weight_decay(Program& p, Tensor loss) {
  const Scope scope(p, "weight_decay");
  p.place.phase = Phase::kLoss;
  std::vector<Tensor> parts;
  for (std::size_t i = 0; i < p.parameters.size(); ++i) {
    if (p.parameter_names[i].find("norm") != std::string::npos) continue;
    parts.push_back(p.emit(Code::kL2Loss, {p.parameters[i]}, Shape{}));
  }
  // A chain of sums: as long as the sum of all, and it differentiates.
  Tensor sum = parts[0];
  for (std::size_t i = 1; i < parts.size(); ++i) sum = binary(p, Code::kAdd, sum, parts[i]);
  return binary(p, Code::kAdd, loss, scale(p, sum, 1e-4));
}

}  // namespace

ResnetStages resnet_stages(std::int64_t depth) {
  switch (depth) {
    case 18:
      return {{2, 2, 2, 2}, false};
    case 34:
      return {{3, 4, 6, 3}, false};
    case 50:
      return {{3, 4, 6, 3}, true};
    case 101:
      return {{3, 4, 23, 3}, true};
    case 152:
      return {{3, 8, 36, 3}, true};
    case 200:
      return {{3, 24, 36, 3}, true};
    default:
      break;
  }
  const std::int64_t blocks = (depth - 2) / 3;
  if ((depth - 2) % 3 != 0 || blocks < 10) {
    throw UsageError("depth = " + std::to_string(depth) +
                     " is no ImageNet ResNet: 18, 34, or 3 times at least 10 blocks and 2");
  }
  // Outer stages as in the published ones, the rest 2 : 3 as in ResNet-200.
  const std::int64_t second = (blocks - 6) * 2 / 5;
  return {{3, second, blocks - 6 - second, 3}, true};
}

Tensor resnet_trunk(Program& p, Tensor x, const ResnetStages& stages, std::int64_t width, bool dilated,
                    Tensor* third_stage) {
  x = conv_norm_relu(p, "stem", x, width, 7, {2, 3});
  x = max_pool_2d(p, "pool", x, 3, {2, 1});
  for (int stage = 0; stage < 4; ++stage) {
    const bool holes = dilated && stage >= 2;
    const Block block{width << stage, stage == 0 || holes ? 1 : 2, holes ? 1 << (stage - 1) : 1,
                      stages.bottleneck};
    x = residual_stage(p, "stage" + std::to_string(stage + 1), x, stages.blocks[at(stage)], block);
    if (stage == 2 && third_stage != nullptr) *third_stage = x;
  }
  return x;
}

namespace {

Tensor cifar_trunk(Program& p, Tensor x, std::int64_t depth, std::int64_t width) {
  const bool bottleneck = depth >= 164 && (depth - 2) % 9 == 0;
  if (!bottleneck && (depth < 8 || (depth - 2) % 6 != 0)) {
    throw UsageError("depth = " + std::to_string(depth) +
                     " is no CIFAR ResNet: 6 n + 2, or 9 n + 2 from 164 on");
  }
  x = conv_norm_relu(p, "stem", x, width, 3, {1, 1});
  for (int stage = 0; stage < 3; ++stage) {
    const Block block{width << stage, stage == 0 ? 1 : 2, 1, bottleneck};
    x = residual_stage(p, "stage" + std::to_string(stage + 1), x, (depth - 2) / (bottleneck ? 9 : 6), block);
  }
  return x;
}

}  // namespace

Tensor build_resnet(Program& p, const Recipe& r) {
  const ModelSettings& s = r.size;
  Tensor x = p.add_input(Role::kBatch, {s.batch, 3, s.resolution, s.resolution}, "images");
  x = r.variant == "cifar" ? cifar_trunk(p, x, s.depth, s.width)
                           : resnet_trunk(p, x, resnet_stages(s.depth), s.width, false);
  const Tensor logits = dense(p, "head", global_average(p, "pool_out", x), s.classes);
  const Tensor loss = cross_entropy_loss(p, logits);
  return p.primitives() && r.weight_decay ? with_weight_decay(p, loss) : loss;
}

}  // namespace remat::generate
