// The ops of tensor programs. Images are N, C, H, W; `n[...]` and `x` are the op's attributes.
#pragma once

#include <cstdint>
#include <string_view>

namespace remat::generate {

enum class Code : std::uint8_t {
  // Elementwise; the binary ones stretch ones as in broadcast_shape.
  kAdd,
  kSub,
  kMul,
  kDiv,
  kAddN,
  kNeg,
  kSquare,
  kFloor,
  kRsqrt,
  kRsqrtGrad,  // rsqrt_grad: y, gradient
  kScale,      // times x
  kRelu,
  kReluGrad,  // n[0]: cut off at n[0] if not 0; relu_grad: gradient, y
  kGelu,
  kGeluGrad,  // gelu_grad: gradient, x (tanh form)
  kIdentity,
  // Shapes and copies.
  kReshape,
  kTranspose,  // transpose: n[i] is the input dimension that becomes dimension i
  kBroadcastTo,
  kSumTo,  // to the output's shape; adjoint to each other
  kConcat,
  kSlice,
  kSlicePad,  // n[0]: dimension, n[1]: where the slice begins; slice_pad is slice's adjoint
  kConstant,
  kFill,  // constant: x everywhere
  kShapeOf,
  kIndices,
  kGroup,  // bookkeeping of primitive programs: arithmetic on shapes, waiting
  // Sums over the dimensions in bit mask n[0]; kept with length 1.
  kReduceSum,
  kReduceMean,
  // Linear algebra. dot: batched, n[0], n[1]: transpose the last two dimensions of a, b.
  kDot,
  kLinear,  // linear: x, weight [in, out], bias
  kBiasAdd,
  kBiasGrad,  // n[0]: dimension of the bias
  // Images. n: stride, padding, dilation, groups; kernel size where there is no weight in n[4].
  kConv,
  kConvInputGrad,
  kConvWeightGrad,
  kConvBackward,
  kConvTranspose,
  kConvTransposeBackward,  // conv_backward: gradient, x, weight; n[4]: 1 without input gradient, n[5]: 1 with
                           // bias
  kMaxPool,
  kMaxPoolGrad,
  kAvgPool,
  kAvgPoolGrad,
  kUnpool,
  kUnpoolGrad,
  kResize,
  kResizeGrad,  // bilinear, corners not aligned
  // Normalisation: y, mean, inverse deviation; batch norm also both running statistics.
  kBatchNorm,
  kBatchNormGrad,
  kLayerNorm,
  kLayerNormGrad,
  // Losses and attention.
  kSoftmax,
  kSoftmaxGrad,
  kLogSoftmax,
  kLogSoftmaxGrad,
  kNllLoss,
  kNllLossGrad,
  kSoftmaxXent,
  kMseLoss,
  kMseLossGrad,
  kL2Loss,  // l2_loss: half the sum of squares
  kRandom,
  kDropout,
  kDropoutGrad,
  kAttention,
  kAttentionGrad,  // n[0]: 1 for causal
  kEmbedding,
  kEmbeddingGrad,
  // Spectral layers: transforms over all dimensions but the first two (samples, channels); complex numbers
  // are pairs in the last dimension. mode_mix keeps the lowest modes, at both ends of all dimensions but the
  // last one.
  kRfft,
  kRfftGrad,
  kIrfft,
  kIrfftGrad,
  kModeMix,
  kModeMixInputGrad,
  kModeMixWeightGrad,
  // Parameters.
  kVariable,
  kAssign,
  kSgd,
  kMomentum,
  kAdam,
  kMovingAverage,
};

std::string_view to_string(Code code);

}  // namespace remat::generate
