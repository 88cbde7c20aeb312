// An op of one graph as the builder of another takes it.
#pragma once

#include <array>
#include <vector>

#include "remat/graph.h"

namespace remat {

/// What the op costs and takes, under new ids. It has no texts, phase, `after` and `forward_of`: those are of
/// the new graph. The rows of `spec()` live as long as the copy.
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

  /// More momentary bytes, for what the op makes elsewhere.
  void add_momentary(Bytes bytes) { costs_.workspace += bytes; }

  /// An output that is a mark for what the op made elsewhere: it takes the place of no input, but the step
  /// still reuses that.
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
