#include "generate/cost.h"

#include <algorithm>
#include <cmath>

#include "base/numbers.h"

namespace remat::generate {
namespace {

double elements(const Program& p, Tensor t) { return real(p.shape(t).elements()); }

/// Multiply-and-adds of a convolution: each element of `image` (the result of conv, the source of its
/// adjoints) meets one weight of each input channel and place of the window.
double conv_flops(const Program& p, Tensor image, Tensor weight) {
  return 2 * elements(p, image) * elements(p, weight) / real(p.shape(weight)[0]);
}

/// Elementwise work by element of the first output; what is not listed moves data only.
double flops_per_element(Code code) {
  switch (code) {
    case Code::kGelu:
      return 8;
    case Code::kGeluGrad:
      return 14;
    case Code::kBatchNorm:
    case Code::kLayerNorm:
      return 8;
    case Code::kBatchNormGrad:
    case Code::kLayerNormGrad:
      return 12;
    case Code::kSoftmax:
    case Code::kSoftmaxGrad:
    case Code::kLogSoftmax:
    case Code::kLogSoftmaxGrad:
    case Code::kSoftmaxXent:
      return 5;
    case Code::kDropout:
    case Code::kRandom:
      return 10;
    case Code::kAdam:
      return 12;
    case Code::kResize:
    case Code::kResizeGrad:
      return 8;
    case Code::kReshape:
    case Code::kTranspose:
    case Code::kConcat:
    case Code::kSlice:
    case Code::kSlicePad:
    case Code::kBroadcastTo:
    case Code::kIdentity:
    case Code::kConstant:
    case Code::kFill:
    case Code::kShapeOf:
    case Code::kIndices:
    case Code::kGroup:
    case Code::kEmbedding:
    case Code::kVariable:
    case Code::kAssign:
      return 0;
    default:
      return 1;
  }
}

double fft_flops(const Program& p, Tensor signal) {
  const Shape s = p.shape(signal);
  const auto field = elements(p, signal) / real(s[0] * s[1]);
  return 2.5 * elements(p, signal) * std::log2(std::max(2.0, field));
}

}  // namespace

double flop_count(const Program& p, Node n) {
  const auto in = [&](int i) { return p.input(n, i); };
  const Tensor out = p.output(n, 0);
  const Attributes& a = p.nodes[n].attributes;
  switch (p.nodes[n].code) {
    case Code::kDot:
      return 2 * elements(p, out) * real(p.shape(in(0))[a.n[0] != 0 ? -2 : -1]);
    case Code::kLinear:
      return 2 * elements(p, out) * real(p.shape(in(0))[1]) + elements(p, out);
    case Code::kConv:
      return conv_flops(p, out, in(1));
    case Code::kConvInputGrad:
      return conv_flops(p, in(0), in(1));
    case Code::kConvWeightGrad:
      return conv_flops(p, in(0), out);
    case Code::kConvBackward:
      return (a.n[4] != 0 ? 1 : 2) * conv_flops(p, in(0), in(2));
    case Code::kConvTranspose:
      return conv_flops(p, in(0), in(1));
    case Code::kConvTransposeBackward:
      return (a.n[4] != 0 ? 1 : 2) * conv_flops(p, in(1), in(2));
    case Code::kMaxPool:
    case Code::kAvgPool:
      return elements(p, out) * a.n[4] * a.n[4];
    case Code::kAttention:
    case Code::kAttentionGrad: {
      const Tensor q = p.nodes[n].code == Code::kAttention ? in(0) : in(1);
      const Tensor k = p.nodes[n].code == Code::kAttention ? in(1) : in(2);
      const double products =
          p.nodes[n].code == Code::kAttention ? 2 : 5;  // backward forms the weights again
      return products * 2 * elements(p, q) * real(p.shape(k)[2]) * (a.n[0] != 0 ? 0.5 : 1);
    }
    case Code::kRfft:
      return fft_flops(p, in(0));
    case Code::kIrfftGrad:
      return fft_flops(p, in(0));
    case Code::kIrfft:
    case Code::kRfftGrad:
      return fft_flops(p, out);
    case Code::kModeMix:
      return 4 * elements(p, in(1)) * real(p.shape(out)[0]);
    case Code::kModeMixInputGrad:
      return 4 * elements(p, in(1)) * real(p.shape(out)[0]);
    case Code::kModeMixWeightGrad:
      return 4 * elements(p, out) * real(p.shape(in(0))[0]);
    case Code::kReduceSum:
    case Code::kReduceMean:
    case Code::kSumTo:
    case Code::kBiasGrad:
    case Code::kL2Loss:
    case Code::kMseLoss:
      return 2 * elements(p, in(0));
    case Code::kAddN:
      return elements(p, out) * real(p.inputs[n].size() - 1);
    default:
      return flops_per_element(p.nodes[n].code) * elements(p, out);
  }
}

double byte_count(const Program& p, Node n) {
  double bytes = 0;
  for (Tensor t : p.inputs[n]) bytes += real(p.tensors[t].bytes());
  for (Tensor t : p.outputs[n]) bytes += real(p.tensors[t].bytes());
  // A lookup reads the rows it returns, not the table.
  if (p.nodes[n].code == Code::kEmbedding) bytes -= real(p.tensors[p.input(n, 0)].bytes());
  return bytes;
}

Duration roofline(const Program& p, Node n, const Device& device) {
  const double seconds = device.launch_seconds + std::max(flop_count(p, n) / device.flops_per_second,
                                                          byte_count(p, n) / device.bytes_per_second);
  // What lasts longer than a graph may say is refused by the builder.
  const double nanoseconds = std::min(seconds * 1e9, 0x1p62);
  return Duration(std::max<std::int64_t>(1, std::llround(nanoseconds)));
}

}  // namespace remat::generate
