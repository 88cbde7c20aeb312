#include "generate/codes.h"

#include <array>

namespace remat::generate {

std::string_view to_string(Code code) {
  // In the order of the enumeration.
  static constexpr auto kNames = std::to_array<std::string_view>({
      "add", "sub", "mul", "div", "add_n", "neg", "square", "floor", "rsqrt", "rsqrt_grad", "scale", "relu",
      "relu_grad", "gelu", "gelu_grad", "identity", "reshape", "transpose", "broadcast_to", "sum_to", "concat",
      "slice", "slice_pad", "constant", "fill", "shape_of", "indices", "group", "reduce_sum", "reduce_mean", "dot",
      "linear", "bias_add", "bias_grad", "conv", "conv_input_grad", "conv_weight_grad", "conv_backward",
      "conv_transpose", "conv_transpose_backward", "max_pool", "max_pool_grad", "avg_pool", "avg_pool_grad",
      "unpool", "unpool_grad", "resize", "resize_grad", "batch_norm", "batch_norm_grad", "layer_norm",
      "layer_norm_grad", "softmax", "softmax_grad", "log_softmax", "log_softmax_grad", "nll_loss", "nll_loss_grad",
      "softmax_xent", "mse_loss", "mse_loss_grad", "l2_loss", "random", "dropout", "dropout_grad", "attention",
      "attention_grad", "embedding", "embedding_grad", "rfft2", "rfft2_grad", "irfft2", "irfft2_grad", "mode_mix",
      "mode_mix_input_grad", "mode_mix_weight_grad", "variable", "assign", "sgd", "momentum", "adam", "moving_average"});
  static_assert(kNames.size() == static_cast<std::size_t>(Code::kMovingAverage) + 1);
  return kNames[static_cast<std::size_t>(code)];
}

}  // namespace remat::generate
