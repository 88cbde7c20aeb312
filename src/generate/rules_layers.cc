// Differentiation rules of images, normalisation, losses, attention and spectral layers.
#include "generate/backward.h"
#include "generate/ops.h"

namespace remat::generate {
namespace {

/// One kernel for all needed gradients of a convolution; primitive programs have one op for each.
void differentiate_conv(Backward& b, bool transposed) {
  Program& p = b.p;
  const Tensor g = b.grad();
  const bool bias = p.inputs[b.node].size() > 2;
  Attributes a = b.attributes();
  if (p.primitives() && !transposed) {
    const Tensor shapes =
        p.emit_all(Code::kIndices, {b.in(0), b.in(1)}, {Output{Shape{4}}, Output{Shape{4}}});
    if (b.wants(0)) b.give(0, p.emit(Code::kConvInputGrad, {g, b.in(1), shapes}, p.shape(b.in(0)), a));
    if (b.wants(1))
      b.give(1, p.emit(Code::kConvWeightGrad, {g, b.in(0), shapes.next()}, p.shape(b.in(1)), a));
    if (bias) b.give(2, p.emit(Code::kBiasGrad, {g}, p.shape(b.in(2)), {{1}, 0}));
    return;
  }
  std::vector<Output> outputs;
  if (b.wants(0)) outputs.push_back({p.shape(b.in(0))});
  outputs.push_back({p.shape(b.in(1))});
  if (bias) outputs.push_back({p.shape(b.in(2))});
  a.n[4] = !b.wants(0);
  a.n[5] = bias;
  const Tensor ins[] = {g, b.in(0), b.in(1)};
  Tensor made = p.emit_all(transposed ? Code::kConvTransposeBackward : Code::kConvBackward, ins, outputs, a);
  for (int i = 0; i < (bias ? 3 : 2); ++i) {
    if (i == 0 && !b.wants(0)) continue;
    b.give(i, made);
    ++made;
  }
}

/// An op whose gradient op makes the gradients of inputs 0, 1, ... as its outputs.
void differentiate_by(Backward& b, Code code, std::initializer_list<Tensor> inputs, int gradients,
                      Attributes a = {}) {
  std::vector<Output> outputs;
  for (int i = 0; i < gradients; ++i) outputs.push_back({b.p.shape(b.in(i))});
  const Tensor made = b.p.emit_all(code, std::span(inputs.begin(), inputs.size()), outputs, a);
  for (int i = 0; i < gradients; ++i) {
    if (b.wants(i)) b.give(i, Tensor(made.index() + i));
  }
}

/// TensorFlow has no kernel for the gradient of softmax: (g - sum(g y)) y.
void differentiate_softmax(Backward& b) {
  Program& p = b.p;
  const Tensor g = b.grad(), y = b.out();
  if (!p.primitives()) return differentiate_by(b, Code::kSoftmaxGrad, {g, y}, 1);
  const Tensor sum = reduce(p, Code::kReduceSum, binary(p, Code::kMul, g, y), 1U << (p.shape(y).rank - 1));
  b.give(0, binary(p, Code::kMul, binary(p, Code::kSub, g, sum), y));
}

}  // namespace

bool differentiate_images(Backward& b) {
  const Tensor g = b.grad();
  const Attributes a = b.attributes();
  switch (b.p.nodes[b.node].code) {
    case Code::kConv:
      differentiate_conv(b, false);
      return true;
    case Code::kConvTranspose:
      differentiate_conv(b, true);
      return true;
    case Code::kMaxPool:
      differentiate_by(b, Code::kMaxPoolGrad, {g, b.out(1)}, 1);
      return true;
    case Code::kAvgPool:
      differentiate_by(b, Code::kAvgPoolGrad, {g}, 1, a);
      return true;
    case Code::kUnpool:
      differentiate_by(b, Code::kUnpoolGrad, {g, b.in(1)}, 1);
      return true;
    case Code::kResize:
      differentiate_by(b, Code::kResizeGrad, {g}, 1);
      return true;
    case Code::kRfft:
      differentiate_by(b, Code::kRfftGrad, {g}, 1);
      return true;
    case Code::kIrfft:
      differentiate_by(b, Code::kIrfftGrad, {g}, 1);
      return true;
    case Code::kModeMix:
      if (b.wants(0)) b.give(0, b.p.emit(Code::kModeMixInputGrad, {g, b.in(1)}, b.p.shape(b.in(0))));
      if (b.wants(1)) b.give(1, b.p.emit(Code::kModeMixWeightGrad, {g, b.in(0)}, b.p.shape(b.in(1))));
      return true;
    default:
      return false;
  }
}

bool differentiate_layers(Backward& b) {
  Program& p = b.p;
  const Tensor g = b.grad();
  const Attributes a = b.attributes();
  switch (p.nodes[b.node].code) {
    case Code::kBatchNorm:
      differentiate_by(b, Code::kBatchNormGrad, {g, b.in(0), b.in(1), b.out(1), b.out(2)}, 3);
      return true;
    case Code::kLayerNorm:
      differentiate_by(b, Code::kLayerNormGrad, {g, b.in(0), b.in(1), b.out(1), b.out(2)}, 3);
      return true;
    case Code::kSoftmax:
      differentiate_softmax(b);
      return true;
    case Code::kLogSoftmax:
      differentiate_by(b, Code::kLogSoftmaxGrad, {g, b.out()}, 1);
      return true;
    case Code::kNllLoss:
      differentiate_by(b, Code::kNllLossGrad, {g, b.in(1), b.out(1)}, 1);
      return true;
    case Code::kSoftmaxXent: {
      const Tensor rows = reshape(p, g, Shape{p.shape(g)[0], 1});
      b.give(0, binary(p, Code::kMul, rows, b.out(1)));
      return true;
    }
    case Code::kMseLoss:
      differentiate_by(b, Code::kMseLossGrad, {g, b.in(0), b.in(1)}, 1);
      return true;
    case Code::kDropout:
      differentiate_by(b, Code::kDropoutGrad, {g, b.out(1)}, 1, a);
      return true;
    case Code::kAttention:
      differentiate_by(b, Code::kAttentionGrad, {g, b.in(0), b.in(1), b.in(2), b.out(0), b.out(1)}, 3, a);
      return true;
    case Code::kEmbedding:
      b.give(0, p.emit(Code::kEmbeddingGrad, {g, b.in(1)}, p.shape(b.in(0))));
      return true;
    default:
      return false;
  }
}

}  // namespace remat::generate
