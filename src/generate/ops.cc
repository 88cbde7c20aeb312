#include "generate/ops.h"

#include "base/numbers.h"
#include "remat/check.h"

namespace remat::generate {
namespace {

Attributes window_attributes(const Window& w, std::int32_t last = 0) {
  return {{w.stride, w.padding, w.dilation, w.groups, last, 0}, 0};
}

}  // namespace

Tensor unary(Program& p, Code code, Tensor x, Attributes attributes) {
  return p.emit(code, {x}, p.shape(x), attributes);
}

Tensor binary(Program& p, Code code, Tensor a, Tensor b) {
  return p.emit(code, {a, b}, broadcast_shape(p.shape(a), p.shape(b)));
}

Tensor scale(Program& p, Tensor x, double factor) {
  if (p.primitives()) return binary(p, Code::kMul, x, constant(p, factor));
  return unary(p, Code::kScale, x, {{}, factor});
}

Tensor constant(Program& p, double value) { return p.emit(Code::kConstant, {}, Shape{}, {{}, value}); }

Tensor relu(Program& p, Tensor x, int cap) { return unary(p, Code::kRelu, x, {{cap}, 0}); }

Tensor reshape(Program& p, Tensor x, const Shape& shape) {
  REMAT_ASSERT(shape.elements() == p.shape(x).elements(), shape, p.shape(x));
  if (shape == p.shape(x)) return x;
  if (!p.primitives()) return p.emit(Code::kReshape, {x}, shape, {}, p.tensors[x].element_bytes);
  return p.emit(Code::kReshape, {x, constant(p, 0)}, shape);
}

Tensor transpose(Program& p, Tensor x, std::initializer_list<int> order) {
  Shape shape;
  Attributes attributes;
  for (int from : order) {
    attributes.n[at(shape.rank)] = from;
    shape.dim[at(shape.rank++)] = p.shape(x)[from];
  }
  if (!p.primitives()) return p.emit(Code::kTranspose, {x}, shape, attributes);
  return p.emit(Code::kTranspose, {x, constant(p, 0)}, shape, attributes);
}

Tensor broadcast_to(Program& p, Tensor x, const Shape& shape) {
  return shape == p.shape(x) ? x : p.emit(Code::kBroadcastTo, {x}, shape);
}

Tensor sum_to(Program& p, Tensor x, const Shape& shape) {
  return shape == p.shape(x) ? x : p.emit(Code::kSumTo, {x}, shape);
}

Tensor concat(Program& p, std::span<const Tensor> parts, int dimension) {
  Shape shape = p.shape(parts[0]);
  shape[dimension] = 0;
  for (Tensor t : parts) shape[dimension] += p.shape(t)[dimension];
  return p.emit(Code::kConcat, parts, shape, {{dimension}, 0});
}

Tensor slice(Program& p, Tensor x, int dimension, std::int64_t begin, std::int64_t length) {
  Shape shape = p.shape(x);
  REMAT_ASSERT(begin >= 0 && begin + length <= shape[dimension], begin, length, shape);
  shape[dimension] = length;
  return p.emit(Code::kSlice, {x}, shape, {{dimension, narrow<std::int32_t>(begin)}, 0});
}

Tensor reduce(Program& p, Code code, Tensor x, unsigned mask) {
  Shape shape = p.shape(x);
  for (int i = 0; i < shape.rank; ++i) {
    if ((mask >> i & 1) != 0) shape[i] = 1;
  }
  const Attributes attributes{{narrow<std::int32_t>(mask)}, 0};
  if (!p.primitives()) return p.emit(code, {x}, shape, attributes);
  return p.emit(code, {x, constant(p, 0)}, shape, attributes);
}

Tensor dot(Program& p, Tensor a, Tensor b, bool transpose_a, bool transpose_b) {
  const Shape &sa = p.shape(a), &sb = p.shape(b);
  REMAT_ASSERT(sa.rank == sb.rank && sa.rank >= 2, sa, sb);
  REMAT_ASSERT(sa[transpose_a ? -2 : -1] == sb[transpose_b ? -1 : -2], sa, sb);
  Shape shape = sa;
  shape[-2] = sa[transpose_a ? -1 : -2];
  shape[-1] = sb[transpose_b ? -2 : -1];
  return p.emit(Code::kDot, {a, b}, shape, {{transpose_a, transpose_b}, 0});
}

Tensor linear(Program& p, Tensor x, Tensor weight, Tensor bias) {
  return p.emit(Code::kLinear, {x, weight, bias}, Shape{p.shape(x)[0], p.shape(weight)[1]});
}

Tensor bias_add(Program& p, Tensor x, Tensor bias, int dimension) {
  return p.emit(Code::kBiasAdd, {x, bias}, p.shape(x), {{dimension}, 0});
}

std::int64_t window_size(std::int64_t size, std::int64_t kernel, const Window& w) {
  return (size + 2 * w.padding - w.dilation * (kernel - 1) - 1) / w.stride + 1;
}

Tensor conv(Program& p, Tensor x, Tensor weight, Tensor bias, const Window& w) {
  const Shape sx = p.shape(x), sw = p.shape(weight);
  REMAT_ASSERT(sx[1] == sw[1] * w.groups, sx, sw, w.groups);
  const Shape shape{sx[0], sw[0], window_size(sx[2], sw[2], w), window_size(sx[3], sw[3], w)};
  if (!bias) return p.emit(Code::kConv, {x, weight}, shape, window_attributes(w));
  return p.emit(Code::kConv, {x, weight, bias}, shape, window_attributes(w));
}

Tensor conv_transpose(Program& p, Tensor x, Tensor weight, Tensor bias, const Window& w) {
  const Shape sx = p.shape(x), sw = p.shape(weight);
  REMAT_ASSERT(sx[1] == sw[0] && w.dilation == 1 && w.groups == 1, sx, sw, w.dilation, w.groups);
  const Shape shape{sx[0], sw[1], w.stride * (sx[2] - 1) - 2 * w.padding + sw[2],
                    w.stride * (sx[3] - 1) - 2 * w.padding + sw[3]};
  if (!bias) return p.emit(Code::kConvTranspose, {x, weight}, shape, window_attributes(w));
  return p.emit(Code::kConvTranspose, {x, weight, bias}, shape, window_attributes(w));
}

Pooled max_pool(Program& p, Tensor x, std::int32_t kernel, const Window& w) {
  const Shape s = p.shape(x);
  const Shape shape{s[0], s[1], window_size(s[2], kernel, w), window_size(s[3], kernel, w)};
  const Tensor y =
      p.emit_all(Code::kMaxPool, {x}, {Output{shape}, Output{shape, 8}}, window_attributes(w, kernel));
  return {y, y.next()};
}

Tensor avg_pool(Program& p, Tensor x, std::int32_t kernel, const Window& w) {
  const Shape s = p.shape(x);
  const Shape shape{s[0], s[1], window_size(s[2], kernel, w), window_size(s[3], kernel, w)};
  return p.emit(Code::kAvgPool, {x}, shape, window_attributes(w, kernel));
}

Tensor unpool(Program& p, Tensor x, Tensor indices, const Shape& size) {
  return p.emit(Code::kUnpool, {x, indices}, size);
}

Tensor resize(Program& p, Tensor x, std::int64_t height, std::int64_t width) {
  const Shape s = p.shape(x);
  return p.emit(Code::kResize, {x}, Shape{s[0], s[1], height, width});
}

Normalised batch_norm(Program& p, Tensor x, Tensor gamma, Tensor beta, Tensor mean, Tensor variance) {
  const Shape per_channel{p.shape(x)[1]};
  const Tensor y = p.emit_all(Code::kBatchNorm, {x, gamma, beta, mean, variance},
                              {Output{p.shape(x)}, Output{per_channel}, Output{per_channel},
                               Output{per_channel}, Output{per_channel}});
  return {y, p.output(p.tensors[y].producer, 1), p.output(p.tensors[y].producer, 2),
          p.output(p.tensors[y].producer, 3), p.output(p.tensors[y].producer, 4)};
}

Tensor layer_norm(Program& p, Tensor x, Tensor gamma, Tensor beta) {
  Shape per_row = p.shape(x);
  per_row[-1] = 1;
  return p.emit_all(Code::kLayerNorm, {x, gamma, beta},
                    {Output{p.shape(x)}, Output{per_row}, Output{per_row}});
}

Tensor softmax(Program& p, Tensor x) { return unary(p, Code::kSoftmax, x); }

Tensor cross_entropy(Program& p, Tensor logits, Tensor labels) {
  if (p.primitives()) {
    // TensorFlow's kernel makes the gradient next to the loss.
    const Shape rows{p.shape(logits)[0]};
    const Tensor loss =
        p.emit_all(Code::kSoftmaxXent, {logits, labels}, {Output{rows}, Output{p.shape(logits)}});
    return reshape(p, reduce(p, Code::kReduceMean, loss, 1), Shape{});
  }
  const Tensor log = unary(p, Code::kLogSoftmax, logits);
  return p.emit_all(Code::kNllLoss, {log, labels}, {Output{Shape{}}, Output{Shape{}}});
}

Tensor mse_loss(Program& p, Tensor x, Tensor target) {
  if (!p.primitives()) return p.emit(Code::kMseLoss, {x, target}, Shape{});
  const Tensor square = unary(p, Code::kSquare, binary(p, Code::kSub, x, target));
  return reshape(p, reduce(p, Code::kReduceMean, square, (1U << p.shape(x).rank) - 1), Shape{});
}

Tensor dropout(Program& p, Tensor x, double rate) {
  if (rate == 0) return x;
  if (!p.primitives()) {
    return p.emit_all(Code::kDropout, {x}, {Output{p.shape(x)}, Output{p.shape(x), 1}}, {{}, rate});
  }
  const Tensor shape = p.emit(Code::kShapeOf, {x}, Shape{p.shape(x).rank});
  const Tensor low = constant(p, 0), high = constant(p, 1);
  const Tensor random = p.emit(Code::kRandom, {shape}, p.shape(x));
  const Tensor uniform =
      binary(p, Code::kAdd, binary(p, Code::kMul, random, binary(p, Code::kSub, high, low)), low);
  const Tensor keep = constant(p, 1 - rate);
  const Tensor mask = unary(p, Code::kFloor, binary(p, Code::kAdd, uniform, keep));
  return binary(p, Code::kMul, binary(p, Code::kDiv, x, keep), mask);
}

Tensor attention(Program& p, Tensor q, Tensor k, Tensor v, bool causal) {
  Shape sums = p.shape(q);
  --sums.rank;
  Shape out = p.shape(q);
  out[-1] = p.shape(v)[-1];
  return p.emit_all(Code::kAttention, {q, k, v}, {Output{out}, Output{sums}}, {{causal}, 0});
}

Tensor embedding(Program& p, Tensor table, Tensor ids) {
  Shape shape = p.shape(ids);
  ++shape.rank;
  shape[-1] = p.shape(table)[1];
  return p.emit(Code::kEmbedding, {table, ids}, shape);
}

Tensor rfft(Program& p, Tensor x) {
  Shape shape = p.shape(x);
  shape[-1] = shape[-1] / 2 + 1;
  ++shape.rank;
  shape[-1] = 2;
  return p.emit(Code::kRfft, {x}, shape);
}

Tensor irfft(Program& p, Tensor x, std::int64_t width) {
  Shape shape = p.shape(x);
  --shape.rank;
  shape[-1] = width;
  return p.emit(Code::kIrfft, {x}, shape);
}

Tensor mode_mix(Program& p, Tensor x, Tensor weight, std::int64_t size) {
  Shape shape = p.shape(x);
  shape[1] = p.shape(weight)[1];
  for (int i = 2; i < shape.rank - 1; ++i) shape[i] = i + 2 < shape.rank ? size : size / 2 + 1;
  return p.emit(Code::kModeMix, {x, weight}, shape);
}

}  // namespace remat::generate
