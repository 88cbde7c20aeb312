// Reference interpreter of tensor programs on small tensors of doubles: defines every op.
#pragma once

#include <map>
#include <vector>

#include "generate/program.h"

namespace remat::generate::testing {

inline std::size_t at(std::int64_t i) { return static_cast<std::size_t>(i); }

class Interpreter {
 public:
  using Values = std::vector<double>;

  explicit Interpreter(const Program& program) : p(program), data(program.tensors.size()) {}
  /// Sets a program input, or replaces an op's output (parameters of primitive programs).
  void set(Tensor t, Values values) { forced_[t] = std::move(values); }
  /// Runs the nodes before `end`.
  void run(std::size_t end);

  const Program& p;
  IndexVector<Tensor, Values> data;

  const Values& in(Node n, int i) const { return data[p.input(n, i)]; }
  const Shape& in_shape(Node n, int i) const { return p.tensors[p.input(n, i)].shape; }

 private:
  std::map<Tensor, Values> forced_;
};

/// Each returns false for a code that is not its own; outputs are sized and zero.
bool run_elementwise(Interpreter& run, Node n);
bool run_shapes(Interpreter& run, Node n);
bool run_algebra(Interpreter& run, Node n);
bool run_images(Interpreter& run, Node n);
bool run_layers(Interpreter& run, Node n);
bool run_losses(Interpreter& run, Node n);
bool run_spectral(Interpreter& run, Node n);

/// A number in [0, 1) that depends only on its two arguments, so that random ops are repeatable.
double repeatable_random(std::int64_t a, std::int64_t b);

/// Position in `shape` (stretched where it has ones) of element `index` of `whole`.
std::int64_t stretched_index(const Shape& whole, std::int64_t index, const Shape& shape);

}  // namespace remat::generate::testing
