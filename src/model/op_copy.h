// Copies an op of one graph for the builder of another.
#pragma once

#include <array>
#include <vector>

#include "remat/graph.h"

namespace remat {

/// The op's costs, inputs and outputs under new ids, without texts, phase, `after` and `forward_of`, which
/// belong to the new graph. The lists of `spec()` live as long as the copy.
class OpCopy {
 public:
  /// value_of: the index in the new graph of each input and output of the op.
  template <class ValueOf>
  OpCopy(const Graph& graph, OpId op, ValueOf&& value_of) {
    for (ValueId v : graph.inputs[op]) inputs_.push_back(value_of(v));
    for (ValueId v : graph.outputs[op]) outputs_.push_back(value_of(v));
    for (const Over& pair : graph.over[op]) {
      over_.push_back({value_of(pair.input), value_of(pair.output)});
      reused_.push_back(graph.overlap(pair));
    }
    costs_.duration = graph.duration[op];
    costs_.workspace = graph.workspace[op];
    costs_.generator_state = graph.generator_state[op];
    costs_.recomputable = graph.recomputable[op];
  }

  /// Adds momentary bytes, for outputs that the op makes elsewhere.
  void add_momentary(Bytes bytes) { costs_.workspace += bytes; }

  /// Marks an output as a stand-in for a value made elsewhere: it is written over no input, but the step
  /// still reuses the input's memory.
  void reuse_elsewhere(std::int64_t output);

  OpSpec spec() const {
    OpSpec spec = costs_;
    spec.inputs = inputs_;
    spec.outputs = outputs_;
    spec.over = over_;
    return spec;
  }

 private:
  OpSpec costs_{.name = {}};
  std::vector<std::int64_t> inputs_, outputs_;
  std::vector<std::array<std::int64_t, 2>> over_;
  std::vector<Bytes> reused_;
};

}  // namespace remat
