// A small tensor program: ops with shapes, in the order in which they run. Layers append to it (layers.h),
// reverse-mode differentiation appends the backward half (autodiff.h), lowering turns it into a Graph.
#pragma once

#include <array>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/numbers.h"
#include "generate/codes.h"
#include "remat/check.h"
#include "remat/graph.h"
#include "remat/ids.h"

namespace remat::generate {

using Tensor = Id<struct TensorTag>;
using Node = Id<struct NodeTag>;

/// Up to six dimensions. A scalar has none.
struct Shape {
  std::array<std::int64_t, 6> dim{};
  int rank = 0;

  Shape() = default;
  Shape(std::initializer_list<std::int64_t> dims) {
    REMAT_CHECK(dims.size() <= dim.size(), dims.size());
    for (std::int64_t d : dims) dim[at(rank++)] = d;
  }
  /// Negative positions count from the end.
  std::int64_t operator[](int i) const { return dim[at(i < 0 ? rank + i : i)]; }
  std::int64_t& operator[](int i) { return dim[at(i < 0 ? rank + i : i)]; }
  /// Or the largest number where they do not fit into 64 bits, which no graph takes.
  std::int64_t elements() const {
    std::int64_t n = 1;
    for (int i = 0; i < rank; ++i) n = capped(Wide{n} * dim[at(i)]);
    return n;
  }
  friend bool operator==(const Shape&, const Shape&) = default;
};

/// Shape of an elementwise op on both: aligned at the last dimension, ones stretch.
Shape broadcast_shape(const Shape& a, const Shape& b);
std::string to_string(const Shape& shape);

/// kernels: ops as a framework launches them (fused normalisation, several outputs).
/// primitives: ops as they stand in a TensorFlow 1 graph: composites unfolded, variables with their
/// initializers and reads, shape arithmetic and tuple identities of the gradients. See docs/generate.md.
enum class Dialect { kKernels, kPrimitives };

enum class Role : std::uint8_t { kComputed, kBatch, kParameter, kState };

struct TensorInfo {
  Shape shape;
  std::int8_t element_bytes = 4;
  Role role = Role::kComputed;
  Node producer;
  std::int64_t bytes() const { return capped(Wide{shape.elements()} * element_bytes); }
};

/// Numbers of an op that its shapes do not tell; their meaning is documented at each code (codes.h).
struct Attributes {
  std::array<std::int32_t, 6> n{};
  double x = 0;
};

struct NodeInfo {
  Code code;
  Phase phase;
  Attributes attributes;
  Node forward_of;
  std::int32_t module;  ///< row of Program::modules
  std::int32_t layer;   ///< equal for all ops of one layer, forward and backward
};

struct Output {
  Shape shape;
  std::int8_t element_bytes = 4;
};

class Program {
 public:
  explicit Program(Dialect chosen = Dialect::kKernels) : dialect(chosen), modules{""} {}

  Tensor add_input(Role role, const Shape& shape, std::string_view name, std::int8_t element_bytes = 4);
  /// An op with one output.
  Tensor emit(Code code, std::span<const Tensor> ins, const Shape& shape, const Attributes& attributes = {},
              std::int8_t element_bytes = 4);
  Tensor emit(Code code, std::initializer_list<Tensor> ins, const Shape& shape,
              const Attributes& attributes = {}, std::int8_t element_bytes = 4) {
    return emit(code, std::span(ins.begin(), ins.size()), shape, attributes, element_bytes);
  }
  /// An op with several outputs; their tensors are consecutive, the first is returned.
  Tensor emit_all(Code code, std::span<const Tensor> ins, std::span<const Output> outs,
                  const Attributes& attributes = {});
  Tensor emit_all(Code code, std::initializer_list<Tensor> ins, std::initializer_list<Output> outs,
                  const Attributes& attributes = {}) {
    return emit_all(code, std::span(ins.begin(), ins.size()), std::span(outs.begin(), outs.size()),
                    attributes);
  }
  void keep(Tensor t) { kept.push_back(t); }
  bool primitives() const { return dialect == Dialect::kPrimitives; }

  /// A copy: appending an op moves the tensors.
  Shape shape(Tensor t) const { return tensors[t].shape; }
  Tensor output(Node n, int i) const { return outputs[n][at(i)]; }
  Tensor input(Node n, int i) const { return inputs[n][at(i)]; }

  /// Where ops are appended now.
  struct Place {
    Phase phase = Phase::kForward;
    std::int32_t module = 0;
    std::int32_t layer = 0;
    Node forward_of;
  } place;
  std::int32_t new_layer() { return ++num_layers_; }

  Dialect dialect;
  IndexVector<Tensor, TensorInfo> tensors;
  IndexVector<Node, NodeInfo> nodes;
  Rows<Node, Tensor> inputs, outputs;
  std::vector<Tensor> program_inputs;
  std::vector<std::string> input_names;  ///< one for each of program_inputs
  std::vector<Tensor> parameters;        ///< trainable, in the order of their making
  std::vector<std::string> parameter_names;
  std::vector<Tensor> kept;  ///< outputs of the whole program
  std::vector<std::string> modules;

 private:
  std::int32_t num_layers_ = 0;
};

/// Ops appended while it lives belong to module "outer.name", and to one layer of `--granularity layer`
/// (the innermost scope alive).
class Scope {
 public:
  Scope(Program& program, std::string_view name);
  Scope(const Scope&) = delete;
  Scope& operator=(const Scope&) = delete;
  ~Scope() { program_.place = outer_; }

 private:
  Program& program_;
  Program::Place outer_;
};

}  // namespace remat::generate
