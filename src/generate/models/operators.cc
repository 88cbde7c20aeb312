// Neural operators: dense layers over the lowest frequencies of a field.
#include <algorithm>
#include <string>
#include <vector>

#include "base/numbers.h"
#include "generate/checks.h"
#include "generate/layers.h"
#include "generate/models.h"

namespace remat::generate {
namespace {

/// [samples, channels, r, ..., r] with one, two or three dimensions of the field.
Shape field_shape(const ModelSettings& s, int dimensions, std::int64_t channels) {
  Shape shape{s.batch, channels};
  for (int i = 0; i < dimensions; ++i) shape.dim[at(shape.rank++)] = s.resolution;
  return shape;
}

/// Dense layer over the channels of every point: a 1x1 convolution of the field shown as an image.
Tensor pointwise(Program& p, std::string_view name, Tensor x, std::int64_t out) {
  Shape shape = p.shape(x);
  const Shape image{shape[0], shape[1], shape.elements() / (shape[0] * shape[1] * shape[-1]), shape[-1]};
  const Tensor y = conv2d(p, name, reshape(p, x, image), out, 1, {}, true);
  shape[1] = out;
  return reshape(p, y, shape);
}

/// Mixes the channels of the lowest `modes` frequencies: of both signs in all dimensions but the last. The
/// result has `size` points a side.
Tensor spectral_conv(Program& p, Tensor x, std::int64_t out, std::int64_t modes, std::int64_t size) {
  const Scope scope(p, "spectral");
  const Shape field = p.shape(x);
  Shape weight{field[1], out};
  for (int i = 2; i < field.rank; ++i) weight.dim[at(weight.rank++)] = i + 1 < field.rank ? 2 * modes : modes;
  weight.dim[at(weight.rank++)] = 2;
  return irfft(p, mode_mix(p, rfft(p, x), parameter(p, "weight", weight), size), size);
}

/// Two layers over the channels of every point, and the squared error.
Tensor project(Program& p, Tensor x, std::int64_t hidden, std::int64_t out) {
  x = gelu_layer(p, "gelu", pointwise(p, "project", x, hidden));
  x = pointwise(p, "head", x, out);
  return mse_layer(p, x, p.add_input(Role::kBatch, p.shape(x), "target"));
}

/// The U-Net inside a layer of U-FNO: three halvings, skips by concatenation.
Tensor small_unet(Program& p, Tensor x) {
  const Scope scope(p, "unet");
  const std::int64_t width = p.shape(x)[1];
  const auto down = [&](std::string_view name, Tensor from) {
    return conv_norm_relu(p, name, from, width, 3, {2, 1});
  };
  const auto up = [&](std::string_view name, Tensor from, Tensor skip) {
    const Scope inner(p, name);
    const Tensor y = relu_layer(p, "relu", conv2d_transpose(p, "conv", from, width, 4, {2, 1}));
    const Tensor both[] = {skip, y};
    return concat_layer(p, "concat", both, 1);
  };
  const Tensor first = down("down1", x);
  const Tensor second = conv_norm_relu(p, "same2", down("down2", first), width, 3, {1, 1});
  const Tensor third = conv_norm_relu(p, "same3", down("down3", second), width, 3, {1, 1});
  Tensor y = up("up3", third, second);
  y = up("up2", y, first);
  y = up("up1", y, x);
  return conv2d(p, "out", y, width, 3, {1, 1}, true);
}

void require_modes(const ModelSettings& s) {
  require_between<std::int64_t>("heads (modes)", s.heads, 1, s.resolution / 2);
}

}  // namespace

/// Li et al., Fourier Neural Operator (2020): `heads` counts the modes kept in each dimension. The projection
/// is twice as wide as the layers, as in the neuraloperator package.
Tensor build_fno(Program& p, const Recipe& r) {
  const ModelSettings& s = r.size;
  const int dimensions = r.variant == "1d" ? 1 : r.variant == "3d" ? 3 : 2;
  require_modes(s);
  Tensor x = p.add_input(Role::kBatch, field_shape(s, dimensions, dimensions + 1), "field");
  x = pointwise(p, "lift", x, s.width);
  for (std::int64_t i = 0; i < s.depth; ++i) {
    const Scope scope(p, "layers." + std::to_string(i));
    const Tensor spectral = spectral_conv(p, x, s.width, s.heads, s.resolution);
    x = add_layer(p, "add", spectral, pointwise(p, "local", x, s.width));
    if (i + 1 < s.depth) x = gelu_layer(p, "gelu", x);
  }
  return project(p, x, 2 * s.width, s.classes);
}

/// Wen et al., U-FNO (2022), in two dimensions: the second half of the layers adds a small U-Net to the
/// spectral and the local part; relu where the original has a leaky one.
Tensor build_ufno(Program& p, const Recipe& r) {
  const ModelSettings& s = r.size;
  require_modes(s);
  if (s.resolution % 8 != 0)
    throw UsageError("resolution = " + std::to_string(s.resolution) + " is not a multiple of 8");
  Tensor x = p.add_input(Role::kBatch, field_shape(s, 2, 3), "field");
  x = pointwise(p, "lift", x, s.width);
  for (std::int64_t i = 0; i < s.depth; ++i) {
    const Scope scope(p, "layers." + std::to_string(i));
    const Tensor spectral = spectral_conv(p, x, s.width, s.heads, s.resolution);
    Tensor sum = add_layer(p, "add", spectral, pointwise(p, "local", x, s.width));
    if (2 * i >= s.depth) sum = add_layer(p, "add_unet", sum, small_unet(p, x));
    x = relu_layer(p, "relu", sum);
  }
  return project(p, x, 4 * s.width, s.classes);
}

/// Rahman et al., U-NO (2022), in two dimensions: operators to half the domain and twice the width `depth`
/// times, one at the bottom, and back, with skips by concatenation.
Tensor build_uno(Program& p, const Recipe& r) {
  const ModelSettings& s = r.size;
  require_modes(s);
  require_between<std::int64_t>("depth", s.depth, 1, 8);
  const std::int64_t parts = std::int64_t{1} << s.depth;
  if (s.resolution % (2 * parts) != 0)
    throw UsageError("resolution = " + std::to_string(s.resolution) + " is not a multiple of " +
                     std::to_string(2 * parts) + ", as depth = " + std::to_string(s.depth) + " asks");
  const auto layer = [&](std::string_view name, Tensor x, std::int64_t out, std::int64_t size) {
    const Scope scope(p, name);
    const std::int64_t modes = std::min({s.heads, size / 2, p.shape(x)[-1] / 2});
    const Tensor spectral = spectral_conv(p, x, out, modes, size);
    Tensor local = pointwise(p, "local", x, out);
    if (p.shape(x)[-1] != size) local = resize_layer(p, "resize", local, size, size);
    return gelu_layer(p, "gelu", add_layer(p, "add", spectral, local));
  };
  Tensor x = p.add_input(Role::kBatch, field_shape(s, 2, 3), "field");
  x = gelu_layer(p, "lift_gelu", pointwise(p, "lift1", x, s.width / 2));
  x = gelu_layer(p, "lift_gelu2", pointwise(p, "lift2", x, s.width));
  std::vector<Tensor> skips;
  for (std::int64_t level = 0; level < s.depth; ++level) {
    skips.push_back(x);
    x = layer("down" + std::to_string(level), x, s.width << (level + 1), s.resolution >> (level + 1));
  }
  x = layer("bottom", x, s.width << s.depth, s.resolution >> s.depth);
  for (std::int64_t level = s.depth - 1; level >= 0; --level) {
    const std::string name = "up" + std::to_string(level);
    const Tensor y = layer(name, x, s.width << level, s.resolution >> level);
    const Tensor both[] = {skips[at(level)], y};
    x = concat_layer(p, name + ".concat", both, 1);
  }
  return project(p, x, 2 * s.width, s.classes);
}

}  // namespace remat::generate
