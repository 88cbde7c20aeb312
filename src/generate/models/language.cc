// Transformers.
#include <cmath>

#include "base/numbers.h"
#include "generate/checks.h"
#include "generate/layers.h"
#include "generate/models.h"

namespace remat::generate {
namespace {

void check_heads(const ModelSettings& s) {
  if (s.width % s.heads == 0) return;
  throw UsageError("width = " + std::to_string(s.width) +
                   " does not divide into heads = " + std::to_string(s.heads));
}

/// Rows of logits for every token, with the embedding's table as weights.
Tensor tied_head(Program& p, Tensor x, Tensor table) {
  const Scope scope(p, "head");
  const Shape s = p.shape(x);
  return dot(p, reshape(p, x, {s[0] * s[1], s[2]}), table, false, true);
}

/// Vaswani et al. (2017) as TensorFlow's official model has it: normalisation first, no bias in the
/// attention's projections, one table for both embeddings and the output.
class Transformer {
 public:
  Transformer(Program& p, const ModelSettings& s) : p_(p), s_(s) {}

  Tensor run() {
    table_ = parameter(p_, "embedding", {s_.vocabulary, s_.width});
    position_ = p_.add_input(Role::kBatch, {1, s_.sequence, s_.width}, "positions");
    const Tensor padding = p_.add_input(Role::kBatch, {s_.batch, 1, 1, s_.sequence}, "padding");
    const Tensor future = p_.add_input(Role::kBatch, {1, 1, s_.sequence, s_.sequence}, "future");
    const Tensor memory = encode(padding);
    return cross_entropy_loss(p_, tied_head(p_, decode(memory, padding, future), table_));
  }

 private:
  Tensor embed(std::string_view name) {
    const Scope scope(p_, name);
    const Tensor ids = p_.add_input(Role::kBatch, {s_.batch, s_.sequence}, name, 8);
    Tensor x = scale(p_, embedding(p_, table_, ids), std::sqrt(real(s_.width)));
    x = binary(p_, Code::kAdd, x, position_);
    return dropout_layer(p_, "dropout", x, s_.dropout);
  }
  /// x + dropout(part(norm(x)))
  template <class Part>
  Tensor residual(std::string_view name, Tensor x, Part&& part) {
    const Scope scope(p_, name);
    const Tensor y = part(layer_norm_last(p_, "norm", x));
    return add_layer(p_, "add", x, dropout_layer(p_, "dropout", y, s_.dropout));
  }
  Tensor feed_forward(Tensor x) {
    return residual("feed_forward", x, [&](Tensor y) {
      y = relu_layer(p_, "relu", dense_last(p_, "fc1", y, 4 * s_.width));
      return dense_last(p_, "fc2", dropout_layer(p_, "dropout1", y, s_.dropout), s_.width);
    });
  }
  Tensor encode(Tensor padding) {
    Tensor x = embed("source");
    for (std::int64_t i = 0; i < s_.depth; ++i) {
      const Scope scope(p_, "encoder." + std::to_string(i));
      x = residual("self", x, [&](Tensor y) {
        return multi_head_attention(p_, "attention", y, y, padding, attention_);
      });
      x = feed_forward(x);
    }
    return layer_norm_last(p_, "encoder_norm", x);
  }
  Tensor decode(Tensor memory, Tensor padding, Tensor future) {
    Tensor x = embed("target");
    for (std::int64_t i = 0; i < s_.depth; ++i) {
      const Scope scope(p_, "decoder." + std::to_string(i));
      x = residual("self", x,
                   [&](Tensor y) { return multi_head_attention(p_, "attention", y, y, future, attention_); });
      x = residual("cross", x, [&](Tensor y) {
        return multi_head_attention(p_, "attention", y, memory, padding, attention_);
      });
      x = feed_forward(x);
    }
    return layer_norm_last(p_, "decoder_norm", x);
  }

  Program& p_;
  const ModelSettings& s_;
  AttentionOptions attention_{s_.heads, false, false, false, s_.dropout};
  Tensor table_, position_;
};

}  // namespace

Tensor build_transformer(Program& p, const Recipe& r) {
  check_heads(r.size);
  return Transformer(p, r.size).run();
}

/// Radford et al. (2019): GPT-2 with fused attention.
Tensor build_gpt(Program& p, const Recipe& r) {
  const ModelSettings& s = r.size;
  check_heads(s);
  const Tensor table = parameter(p, "embedding", {s.vocabulary, s.width});
  const Tensor positions = parameter(p, "positions", {s.sequence, s.width});
  const Tensor ids = p.add_input(Role::kBatch, {s.batch, s.sequence}, "ids", 8);
  const AttentionOptions attention{s.heads, true, true, true, 0};
  Tensor x;
  {
    const Scope scope(p, "embed");
    x = binary(p, Code::kAdd, embedding(p, table, ids), positions);
    x = dropout_layer(p, "dropout", x, s.dropout);
  }
  for (std::int64_t i = 0; i < s.depth; ++i) {
    const Scope scope(p, "layers." + std::to_string(i));
    Tensor y = layer_norm_last(p, "norm1", x);
    y = multi_head_attention(p, "attention", y, y, Tensor::none(), attention);
    x = add_layer(p, "add1", x, dropout_layer(p, "dropout1", y, s.dropout));
    y = gelu_layer(p, "gelu", dense_last(p, "fc1", layer_norm_last(p, "norm2", x), 4 * s.width));
    y = dropout_layer(p, "dropout2", dense_last(p, "fc2", y, s.width), s.dropout);
    x = add_layer(p, "add2", x, y);
  }
  return cross_entropy_loss(p, tied_head(p, layer_norm_last(p, "norm", x), table));
}

}  // namespace remat::generate
