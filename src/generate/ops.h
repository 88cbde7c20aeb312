// One function per op: infers the shape of the result and appends the op. Shapes that do not fit are a
// mistake in a model's definition, hence assertions.
#pragma once

#include "generate/program.h"

namespace remat::generate {

/// Window of a convolution or pooling: images are N, C, H, W.
struct Window {
  std::int32_t stride = 1;
  std::int32_t padding = 0;
  std::int32_t dilation = 1;
  std::int32_t groups = 1;
};

Tensor unary(Program& p, Code code, Tensor x, Attributes attributes = {});
/// add, sub, mul, div with stretching of ones.
Tensor binary(Program& p, Code code, Tensor a, Tensor b);
Tensor scale(Program& p, Tensor x, double factor);
Tensor constant(Program& p, double value);
Tensor relu(Program& p, Tensor x, int cap = 0);

/// No memory of its own among kernels; an op of its own among primitives.
Tensor reshape(Program& p, Tensor x, const Shape& shape);
Tensor transpose(Program& p, Tensor x, std::initializer_list<int> order);
Tensor broadcast_to(Program& p, Tensor x, const Shape& shape);
Tensor sum_to(Program& p, Tensor x, const Shape& shape);
Tensor concat(Program& p, std::span<const Tensor> parts, int dimension);
Tensor slice(Program& p, Tensor x, int dimension, std::int64_t begin, std::int64_t length);
/// code: kReduceSum or kReduceMean; bit i of `mask` stands for dimension i.
Tensor reduce(Program& p, Code code, Tensor x, unsigned mask);

Tensor dot(Program& p, Tensor a, Tensor b, bool transpose_a = false, bool transpose_b = false);
Tensor linear(Program& p, Tensor x, Tensor weight, Tensor bias);
Tensor bias_add(Program& p, Tensor x, Tensor bias, int dimension);
/// weight [out, in / groups, kh, kw]; `bias` may be none.
Tensor conv(Program& p, Tensor x, Tensor weight, Tensor bias, const Window& window);
/// weight [in, out, kh, kw]; the adjoint of `conv`, stride * (H - 1) - 2 padding + kh rows.
Tensor conv_transpose(Program& p, Tensor x, Tensor weight, Tensor bias, const Window& window);
std::int64_t window_size(std::int64_t size, std::int64_t kernel, const Window& window);

struct Pooled {
  Tensor y, indices;
};
Pooled max_pool(Program& p, Tensor x, std::int32_t kernel, const Window& window);
Tensor avg_pool(Program& p, Tensor x, std::int32_t kernel, const Window& window);
/// Places x at the indices of a max pooling in an image of `size`.
Tensor unpool(Program& p, Tensor x, Tensor indices, const Shape& size);
Tensor resize(Program& p, Tensor x, std::int64_t height, std::int64_t width);

struct Normalised {
  Tensor y, mean, inverse_deviation, running_mean, running_variance;
};
Normalised batch_norm(Program& p, Tensor x, Tensor gamma, Tensor beta, Tensor mean, Tensor variance);
Tensor layer_norm(Program& p, Tensor x, Tensor gamma, Tensor beta);

Tensor softmax(Program& p, Tensor x);
/// Mean over rows of -log softmax(logits)[label]; logits [rows, classes], labels [rows].
Tensor cross_entropy(Program& p, Tensor logits, Tensor labels);
Tensor mse_loss(Program& p, Tensor x, Tensor target);
Tensor dropout(Program& p, Tensor x, double rate);
/// q, k, v [batch, heads, length, size]; fused, saves the log of the sums.
Tensor attention(Program& p, Tensor q, Tensor k, Tensor v, bool causal);
/// table [entries, width], ids any shape.
Tensor embedding(Program& p, Tensor table, Tensor ids);

/// [.., H, W] to [.., H, W / 2 + 1, 2] and back.
/// Of [samples, channels, sizes ...].
Tensor rfft(Program& p, Tensor x);
Tensor irfft(Program& p, Tensor x, std::int64_t width);
/// x [N, I, H, K, 2], weight [I, O, 2 modes, modes, 2]: mixes channels at the lowest modes (first and last
/// `modes` rows, first `modes` columns); zero elsewhere. The result belongs to a field with `size` points a
/// side: [N, O, size, size / 2 + 1, 2].
Tensor mode_mix(Program& p, Tensor x, Tensor weight, std::int64_t size);

}  // namespace remat::generate
