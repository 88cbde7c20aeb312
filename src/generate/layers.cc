#include "generate/layers.h"

#include <cmath>

#include "base/numbers.h"

namespace remat::generate {
namespace {

/// First values as TensorFlow 1 makes them: uniform in [low, high), or filled.
Tensor initial_value(Program& p, const Shape& shape, Init init) {
  if (init != Init::kUniform) {
    const Tensor value = constant(p, init == Init::kOnes ? 1 : 0);
    return p.emit(Code::kFill, {value}, shape);
  }
  const Tensor dims = p.emit(Code::kConstant, {}, Shape{shape.rank});
  const Tensor low = constant(p, -0.1), high = constant(p, 0.1);
  const Tensor random = p.emit(Code::kRandom, {dims}, shape);
  return binary(p, Code::kAdd, binary(p, Code::kMul, random, binary(p, Code::kSub, high, low)), low);
}

Tensor variable(Program& p, const Shape& shape, Init init) {
  const Tensor handle = p.emit(Code::kVariable, {}, Shape{}, {}, 0);
  const Tensor assigned = p.emit(Code::kAssign, {initial_value(p, shape, init), handle}, shape);
  return p.emit(Code::kIdentity, {assigned}, shape);
}

/// The product of the last dimension of x with a matrix as TensorFlow 1 spells it: it sorts the dimensions of
/// x at run time into those that stay and the one that goes, and turns both sides into matrices.
Tensor tensordot(Program& p, Tensor x, Tensor weight) {
  Shape shape = p.shape(x);
  const int rank = shape.rank;
  const Shape vector{rank};
  const Tensor dims = p.emit(Code::kShapeOf, {x}, vector);
  const Tensor free = constant(p, 0), axes = constant(p, 0);
  const Tensor free_dims = p.emit(Code::kIndices, {dims, free, constant(p, 0)}, Shape{rank - 1});
  const Tensor axis_dims = p.emit(Code::kIndices, {dims, axes, constant(p, 0)}, Shape{1});
  const Tensor rows = p.emit(Code::kIndices, {free_dims, constant(p, 0)}, Shape{});
  const Tensor columns = p.emit(Code::kIndices, {axis_dims, constant(p, 0)}, Shape{});
  const Tensor order = p.emit(Code::kIndices, {free, axes, constant(p, 0)}, vector);
  const Tensor matrix_dims = p.emit(Code::kIndices, {rows, columns}, Shape{2});
  const Tensor sorted = p.emit(Code::kTranspose, {x, order}, shape, {{0, 1, 2, 3, 4, 5}, 0});
  const Tensor matrix =
      p.emit(Code::kReshape, {sorted, matrix_dims}, Shape{shape.elements() / shape[-1], shape[-1]});
  const Tensor turned = transpose(p, weight, {0, 1});
  const Tensor product = dot(p, matrix, p.emit(Code::kReshape, {turned, constant(p, 0)}, p.shape(weight)));
  shape[-1] = p.shape(weight)[1];
  const Tensor result_dims = p.emit(Code::kIndices, {free_dims, constant(p, 0), constant(p, 0)}, vector);
  return p.emit(Code::kReshape, {product, result_dims}, shape);
}

/// A reshape whose first two dimensions are read from x at run time (batch and length of sequences).
Tensor reshape_sequence(Program& p, Tensor x, const Shape& shape) {
  if (!p.primitives()) return reshape(p, x, shape);
  const Tensor dims = p.emit(Code::kShapeOf, {x}, Shape{p.shape(x).rank});
  Tensor sizes[2];
  for (Tensor& size : sizes) {
    size = p.emit(Code::kIndices, {dims, constant(p, 0), constant(p, 1), constant(p, 1)}, Shape{});
  }
  const Tensor packed = p.emit(Code::kIndices, {sizes[0], sizes[1], constant(p, 0)}, Shape{shape.rank});
  return p.emit(Code::kReshape, {x, packed}, shape);
}

std::string path_of(const Program& p, std::string_view name) {
  std::string path = p.modules[at(p.place.module)];
  if (!path.empty()) path += '.';
  return path.append(name);
}

/// One step of a running average, as the ops TensorFlow spells it in.
void moving_average(Program& p, Tensor average, Tensor value) {
  const Tensor decay = constant(p, 0.1);
  const Tensor step = binary(p, Code::kMul, binary(p, Code::kSub, average, value), decay);
  p.keep(p.emit(Code::kMovingAverage, {average, step}, p.shape(average)));
}

}  // namespace

Tensor parameter(Program& p, std::string_view name, const Shape& shape, Init init) {
  const Tensor t =
      p.primitives() ? variable(p, shape, init) : p.add_input(Role::kParameter, shape, path_of(p, name));
  p.tensors[t].role = Role::kParameter;
  p.parameters.push_back(t);
  p.parameter_names.push_back(path_of(p, name));
  return t;
}

Tensor state(Program& p, std::string_view name, const Shape& shape) {
  if (p.primitives()) return variable(p, shape, Init::kZeros);
  return p.add_input(Role::kState, shape, path_of(p, name));
}

Tensor dense(Program& p, std::string_view name, Tensor x, std::int64_t out, bool bias) {
  const Scope scope(p, name);
  const Tensor weight = parameter(p, "weight", {p.shape(x)[1], out});
  if (!bias) return dot(p, x, weight);
  const Tensor b = parameter(p, "bias", {out}, Init::kZeros);
  if (!p.primitives()) return linear(p, x, weight, b);
  return bias_add(p, dot(p, x, weight), b, 1);
}

Tensor dense_last(Program& p, std::string_view name, Tensor x, std::int64_t out, bool bias) {
  Shape shape = p.shape(x);
  if (p.primitives()) {
    const Scope scope(p, name);
    const Tensor product = tensordot(p, x, parameter(p, "weight", {shape[-1], out}));
    return bias ? bias_add(p, product, parameter(p, "bias", {out}, Init::kZeros), shape.rank - 1) : product;
  }
  const Tensor rows = reshape(p, x, {shape.elements() / shape[-1], shape[-1]});
  shape[-1] = out;
  return reshape(p, dense(p, name, rows, out, bias), shape);
}

Tensor conv2d(Program& p, std::string_view name, Tensor x, std::int64_t out, std::int64_t kernel,
              const Window& window, bool bias) {
  const Scope scope(p, name);
  const Tensor weight = parameter(p, "weight", {out, p.shape(x)[1] / window.groups, kernel, kernel});
  const Tensor b = bias ? parameter(p, "bias", {out}, Init::kZeros) : Tensor::none();
  if (!bias || !p.primitives()) return conv(p, x, weight, b, window);
  return bias_add(p, conv(p, x, weight, Tensor::none(), window), b, 1);
}

Tensor conv2d_transpose(Program& p, std::string_view name, Tensor x, std::int64_t out, std::int64_t kernel,
                        const Window& window, bool bias) {
  const Scope scope(p, name);
  const Tensor weight = parameter(p, "weight", {p.shape(x)[1], out, kernel, kernel});
  const Tensor b = bias ? parameter(p, "bias", {out}, Init::kZeros) : Tensor::none();
  if (!bias || !p.primitives()) return conv_transpose(p, x, weight, b, window);
  return bias_add(p, conv_transpose(p, x, weight, Tensor::none(), window), b, 1);
}

Tensor batch_norm_2d(Program& p, std::string_view name, Tensor x) {
  const Scope scope(p, name);
  const Shape channels{p.shape(x)[1]};
  const Tensor gamma = parameter(p, "weight", channels, Init::kOnes);
  const Tensor beta = parameter(p, "bias", channels, Init::kZeros);
  const Tensor mean = state(p, "running_mean", channels), variance = state(p, "running_var", channels);
  const Normalised result = batch_norm(p, x, gamma, beta, mean, variance);
  if (p.primitives()) {
    moving_average(p, mean, result.running_mean);
    moving_average(p, variance, result.running_variance);
  } else {
    p.keep(result.running_mean);
    p.keep(result.running_variance);
  }
  return result.y;
}

Tensor layer_norm_last(Program& p, std::string_view name, Tensor x) {
  const Scope scope(p, name);
  const Shape width{p.shape(x)[-1]};
  const Tensor gamma = parameter(p, "weight", width, Init::kOnes);
  const Tensor beta = parameter(p, "bias", width, Init::kZeros);
  if (!p.primitives()) return layer_norm(p, x, gamma, beta);
  const unsigned last = 1U << (p.shape(x).rank - 1);
  const Tensor mean = reduce(p, Code::kReduceMean, x, last);
  const Tensor square = unary(p, Code::kSquare, binary(p, Code::kSub, x, mean));
  const Tensor variance = reduce(p, Code::kReduceMean, square, last);
  const Tensor centred = binary(p, Code::kSub, x, mean);
  const Tensor inverse = unary(p, Code::kRsqrt, binary(p, Code::kAdd, variance, constant(p, 1e-5)));
  const Tensor unit = binary(p, Code::kMul, centred, inverse);
  return binary(p, Code::kAdd, binary(p, Code::kMul, unit, gamma), beta);
}

Tensor relu_layer(Program& p, std::string_view name, Tensor x, int cap) {
  const Scope scope(p, name);
  return relu(p, x, cap);
}

Tensor gelu_layer(Program& p, std::string_view name, Tensor x) {
  const Scope scope(p, name);
  return unary(p, Code::kGelu, x);
}

Tensor dropout_layer(Program& p, std::string_view name, Tensor x, double rate) {
  if (rate == 0) return x;
  const Scope scope(p, name);
  return dropout(p, x, rate);
}

Tensor max_pool_2d(Program& p, std::string_view name, Tensor x, std::int32_t kernel, const Window& window) {
  const Scope scope(p, name);
  return max_pool(p, x, kernel, window).y;
}

Tensor add_layer(Program& p, std::string_view name, Tensor a, Tensor b) {
  const Scope scope(p, name);
  return binary(p, Code::kAdd, a, b);
}

Tensor concat_layer(Program& p, std::string_view name, std::span<const Tensor> parts, int dimension) {
  const Scope scope(p, name);
  return concat(p, parts, dimension);
}

Tensor global_average(Program& p, std::string_view name, Tensor x) {
  const Scope scope(p, name);
  return reshape(p, reduce(p, Code::kReduceMean, x, 0b1100), {p.shape(x)[0], p.shape(x)[1]});
}

Tensor flatten(Program& p, Tensor x) {
  const Shape shape = p.shape(x);
  return reshape(p, x, {shape[0], shape.elements() / shape[0]});
}

Tensor resize_layer(Program& p, std::string_view name, Tensor x, std::int64_t height, std::int64_t width) {
  const Scope scope(p, name);
  return resize(p, x, height, width);
}

Tensor conv_norm_relu(Program& p, std::string_view name, Tensor x, std::int64_t out, std::int64_t kernel,
                      const Window& window, int cap) {
  const Scope scope(p, name);
  x = conv2d(p, "conv", x, out, kernel, window);
  x = batch_norm_2d(p, "norm", x);
  return relu_layer(p, "relu", x, cap);
}

Tensor multi_head_attention(Program& p, std::string_view name, Tensor x, Tensor memory, Tensor mask,
                            const AttentionOptions& o) {
  const Scope scope(p, name);
  const Shape sx = p.shape(x), sm = p.shape(memory);
  const std::int64_t width = sx[2], size = width / o.heads;
  const auto heads = [&](std::string_view part, Tensor from, const Shape& shape) {
    const Tensor y = dense_last(p, part, from, width, o.bias);
    return transpose(p, reshape_sequence(p, y, {shape[0], shape[1], o.heads, size}), {0, 2, 1, 3});
  };
  const Tensor q = heads("query", x, sx), k = heads("key", memory, sm), v = heads("value", memory, sm);
  Tensor mixed;
  if (o.fused) {
    const Scope inner(p, "attention");
    mixed = attention(p, q, k, v, o.causal);
  } else {
    Tensor scores;
    {
      const Scope inner(p, "scores");
      const Tensor scaled = scale(p, q, 1 / std::sqrt(real(size)));
      scores = dot(p, scaled, k, false, true);
      if (mask) scores = binary(p, Code::kAdd, scores, mask);
      scores = softmax(p, scores);
    }
    const Tensor weights = dropout_layer(p, "dropout", scores, o.dropout);
    const Scope inner(p, "mix");
    mixed = dot(p, weights, v);
  }
  return dense_last(p, "output", reshape_sequence(p, transpose(p, mixed, {0, 2, 1, 3}), sx), width, o.bias);
}

Tensor label_input(Program& p, std::int64_t rows) { return p.add_input(Role::kBatch, {rows}, "labels", 8); }

Tensor cross_entropy_loss(Program& p, Tensor logits, Tensor labels) {
  const Scope scope(p, "loss");
  p.place.phase = Phase::kLoss;
  if (!labels) labels = label_input(p, p.shape(logits)[0]);
  return cross_entropy(p, logits, labels);
}

Tensor add_auxiliary_loss(Program& p, Tensor loss, Tensor auxiliary, double weight) {
  const Scope scope(p, "loss");
  p.place.phase = Phase::kLoss;
  return binary(p, Code::kAdd, loss, scale(p, auxiliary, weight));
}

Tensor pixel_cross_entropy_loss(Program& p, Tensor logits, Tensor labels) {
  const Scope scope(p, "loss");
  p.place.phase = Phase::kLoss;
  const Shape s = p.shape(logits);
  if (!labels) labels = label_input(p, s[0] * s[2] * s[3]);
  const Tensor rows = reshape(p, transpose(p, logits, {0, 2, 3, 1}), {s[0] * s[2] * s[3], s[1]});
  return cross_entropy(p, rows, labels);
}

Tensor mse_layer(Program& p, Tensor x, Tensor target) {
  const Scope scope(p, "loss");
  p.place.phase = Phase::kLoss;
  return mse_loss(p, x, target);
}

}  // namespace remat::generate
