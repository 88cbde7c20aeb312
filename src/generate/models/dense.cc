// Models of dense layers.
#include "generate/checks.h"
#include "generate/layers.h"
#include "generate/models.h"

namespace remat::generate {

Tensor build_ffn(Program& p, const Recipe& r) {
  const ModelSettings& s = r.size;
  Tensor x = p.add_input(Role::kBatch, {s.batch, s.width}, "x");
  for (std::int64_t i = 0; i < s.depth; ++i) {
    const Scope scope(p, "layers." + std::to_string(i));
    x = dense(p, "dense", x, s.width);
    x = relu_layer(p, "relu", x);
  }
  x = dense(p, "head", x, s.classes);
  return mse_layer(p, x, p.add_input(Role::kBatch, {s.batch, s.classes}, "target"));
}

namespace {

Tensor mixer_mlp(Program& p, std::string_view name, Tensor x, std::int64_t hidden) {
  const Scope scope(p, name);
  const std::int64_t width = p.shape(x)[-1];
  x = dense_last(p, "fc1", x, hidden);
  x = gelu_layer(p, "gelu", x);
  return dense_last(p, "fc2", x, width);
}

}  // namespace

/// Tolstikhin et al., MLP-Mixer (2021): patches of 16 x 16, token and channel mixing.
Tensor build_mlp_mixer(Program& p, const Recipe& r) {
  const ModelSettings& s = r.size;
  if (s.resolution % 16 != 0)
    throw UsageError("resolution = " + std::to_string(s.resolution) +
                     " is not a multiple of the patch size 16");
  Tensor x = p.add_input(Role::kBatch, {s.batch, 3, s.resolution, s.resolution}, "images");
  x = conv2d(p, "patches", x, s.width, 16, {16}, true);
  const std::int64_t tokens = (s.resolution / 16) * (s.resolution / 16);
  x = transpose(p, reshape(p, x, {s.batch, s.width, tokens}), {0, 2, 1});
  for (std::int64_t i = 0; i < s.depth; ++i) {
    const Scope scope(p, "layers." + std::to_string(i));
    Tensor y = transpose(p, layer_norm_last(p, "norm1", x), {0, 2, 1});
    y = mixer_mlp(p, "tokens", y, s.width / 2);
    x = add_layer(p, "add1", x, transpose(p, y, {0, 2, 1}));
    x = add_layer(p, "add2", x, mixer_mlp(p, "channels", layer_norm_last(p, "norm2", x), 4 * s.width));
  }
  x = layer_norm_last(p, "norm", x);
  x = reshape(p, reduce(p, Code::kReduceMean, x, 0b010), {s.batch, s.width});
  return cross_entropy_loss(p, dense(p, "head", x, s.classes));
}

}  // namespace remat::generate
