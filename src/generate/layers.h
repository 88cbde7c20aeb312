// Layers: parameters and the ops on them, each in a module of its own.
#pragma once

#include "generate/ops.h"
#include "generate/program.h"

namespace remat::generate {

enum class Init { kUniform, kZeros, kOnes };

/// A trainable parameter. Kernel programs take it as an input; primitive programs draw its first value,
/// assign it and read it.
Tensor parameter(Program& p, std::string_view name, const Shape& shape, Init init = Init::kUniform);
/// State that a layer keeps between steps without a gradient: running statistics, moments.
Tensor state(Program& p, std::string_view name, const Shape& shape);

/// x [rows, in] to [rows, out].
Tensor dense(Program& p, std::string_view name, Tensor x, std::int64_t out, bool bias = true);
/// The same over the last dimension of x with any number of leading ones.
Tensor dense_last(Program& p, std::string_view name, Tensor x, std::int64_t out, bool bias = true);

Tensor conv2d(Program& p, std::string_view name, Tensor x, std::int64_t out, std::int64_t kernel,
              const Window& window = {}, bool bias = false);
Tensor conv2d_transpose(Program& p, std::string_view name, Tensor x, std::int64_t out, std::int64_t kernel,
                        const Window& window, bool bias = true);
/// With the running statistics, whose new values are kept outputs.
Tensor batch_norm_2d(Program& p, std::string_view name, Tensor x);
Tensor layer_norm_last(Program& p, std::string_view name, Tensor x);
Tensor relu_layer(Program& p, std::string_view name, Tensor x, int cap = 0);
Tensor gelu_layer(Program& p, std::string_view name, Tensor x);
Tensor dropout_layer(Program& p, std::string_view name, Tensor x, double rate);
Tensor max_pool_2d(Program& p, std::string_view name, Tensor x, std::int32_t kernel, const Window& window);
Tensor add_layer(Program& p, std::string_view name, Tensor a, Tensor b);
Tensor concat_layer(Program& p, std::string_view name, std::span<const Tensor> parts, int dimension);
/// Mean over height and width: [N, C, H, W] to [N, C].
Tensor global_average(Program& p, std::string_view name, Tensor x);
/// [N, ...] to [N, product].
Tensor flatten(Program& p, Tensor x);
Tensor resize_layer(Program& p, std::string_view name, Tensor x, std::int64_t height, std::int64_t width);

/// Convolution, batch normalisation, relu.
Tensor conv_norm_relu(Program& p, std::string_view name, Tensor x, std::int64_t out, std::int64_t kernel,
                      const Window& window = {}, int cap = 0);

struct AttentionOptions {
  std::int64_t heads = 8;
  bool causal = false;
  bool fused = false;  ///< one op that keeps the log of the sums instead of the weights
  bool bias = false;   ///< of the four projections
  double dropout = 0;  ///< of the weights; plain attention only
};
/// x [batch, length, width]; keys and values from `memory` (x itself for self-attention); `mask`, added to
/// the scores of plain attention, may be none.
Tensor multi_head_attention(Program& p, std::string_view name, Tensor x, Tensor memory, Tensor mask,
                            const AttentionOptions& options);

/// Mean cross-entropy of logits [rows, classes] against `labels` [rows], as loss; none: new batch input.
Tensor cross_entropy_loss(Program& p, Tensor logits, Tensor labels = Tensor::none());
/// The same of an image of logits [N, C, H, W] and one label a pixel.
Tensor pixel_cross_entropy_loss(Program& p, Tensor logits, Tensor labels = Tensor::none());
/// New batch input with one label a row.
Tensor label_input(Program& p, std::int64_t rows);
/// loss + weight * auxiliary, as loss.
Tensor add_auxiliary_loss(Program& p, Tensor loss, Tensor auxiliary, double weight);
Tensor mse_layer(Program& p, Tensor x, Tensor target);

}  // namespace remat::generate
