// The interface of differentiation rules: gradients of an op's outputs, and places for those of its inputs.
#pragma once

#include <vector>

#include "generate/program.h"

namespace remat::generate {

class Backward {
 public:
  Backward(Program& program, Tensor loss);
  std::vector<Tensor> run();

  Program& p;
  Node node;  ///< the op being differentiated
  const Attributes& attributes() const { return p.nodes[node].attributes; }
  Tensor in(int i) const { return p.input(node, i); }
  Tensor out(int i = 0) const { return p.output(node, i); }
  /// Gradient of an output; none where nothing depends on it.
  Tensor grad(int i = 0) const { return gradient_[out(i)]; }
  /// Whether the gradient of an input is needed.
  bool wants(int i) const { return needed_[in(i)]; }
  void give(int i, Tensor gradient) { given_.push_back({in(i), gradient}); }

 private:
  struct Given {
    Tensor to, gradient;
  };
  void mark_needed();
  bool has_gradient(Node n) const;
  void collect(Node n);
  void differentiate_node(Node n);
  void deliver();
  void accumulate(Tensor to, Tensor gradient);

  Tensor loss_;
  std::size_t num_forward_;
  std::vector<bool> reached_;
  IndexVector<Tensor, bool> needed_;
  IndexVector<Tensor, Tensor> gradient_;
  /// Primitive programs add all contributions to a gradient in one op once the last is there.
  struct Link {
    Tensor gradient;
    std::int32_t next;
  };
  IndexVector<Tensor, std::int32_t> pending_;
  std::vector<Link> links_;
  std::vector<Given> given_;
};

/// Rules by family; each returns false for a code that is not its own.
bool differentiate_elementwise(Backward& b);
bool differentiate_shapes(Backward& b);
bool differentiate_algebra(Backward& b);
bool differentiate_images(Backward& b);
bool differentiate_layers(Backward& b);

}  // namespace remat::generate
