// Radosavovic et al., Designing Network Design Spaces (2020): RegNetX.
#include <string>

#include "base/numbers.h"
#include "generate/layers.h"
#include "generate/models.h"

namespace remat::generate {
namespace {

struct Stages {
  std::array<std::int64_t, 4> blocks, widths;
  std::int64_t group_width;
};

Stages stages_of(std::string_view variant) {
  if (variant == "x_400mf") return {{1, 2, 7, 12}, {32, 64, 160, 400}, 16};
  if (variant == "x_3_2gf") return {{2, 6, 15, 2}, {96, 192, 432, 1008}, 48};
  return {{2, 7, 13, 1}, {336, 672, 1344, 2520}, 168};
}

/// A bottleneck block with ratio 1: 1x1, grouped 3x3, 1x1.
Tensor block(Program& p, std::string_view name, Tensor x, std::int64_t width, std::int64_t group_width,
             std::int32_t stride) {
  const Scope scope(p, name);
  const Window middle{stride, 1, 1, narrow<std::int32_t>(width / group_width)};
  Tensor y = conv_norm_relu(p, "a", x, width, 1);
  y = conv_norm_relu(p, "b", y, width, 3, middle);
  y = batch_norm_2d(p, "norm", conv2d(p, "conv", y, width, 1));
  if (stride != 1 || p.shape(x)[1] != width) {
    const Scope shortcut(p, "shortcut");
    x = batch_norm_2d(p, "norm", conv2d(p, "conv", x, width, 1, {stride}));
  }
  return relu_layer(p, "relu", add_layer(p, "add", y, x));
}

}  // namespace

Tensor build_regnet(Program& p, const Recipe& r) {
  const ModelSettings& s = r.size;
  const Stages stages = stages_of(r.variant);
  Tensor x = p.add_input(Role::kBatch, {s.batch, 3, s.resolution, s.resolution}, "images");
  x = conv_norm_relu(p, "stem", x, 32, 3, {2, 1});
  for (std::size_t stage = 0; stage < 4; ++stage) {
    const Scope scope(p, "stage" + std::to_string(stage + 1));
    for (std::int64_t i = 0; i < stages.blocks[stage]; ++i)
      x = block(p, std::to_string(i), x, stages.widths[stage], stages.group_width, i == 0 ? 2 : 1);
  }
  return cross_entropy_loss(p, dense(p, "head", global_average(p, "pool_out", x), s.classes));
}

}  // namespace remat::generate
