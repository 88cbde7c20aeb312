#include "graph/need.h"

#include <algorithm>

namespace remat {

Bytes need_of(const Graph& graph, OpId op) {
  Bytes sum = graph.resident + graph.workspace[op];
  for (ValueId v : graph.outputs[op]) sum += graph.bytes[v];
  for (ValueId v : graph.inputs[op]) {
    if (!graph.is_graph_input(v)) sum += graph.bytes[v];
  }
  for (const Over& pair : graph.over[op]) {
    if (may_apply(graph, pair)) sum -= graph.overlap(pair);
  }
  return sum;
}

Bytes bytes_beside(const Graph& graph, OpId op, ValueId v) {
  const auto inputs = graph.inputs[op];
  if (!std::binary_search(inputs.begin(), inputs.end(), v)) return graph.bytes[v];
  for (const Over& pair : graph.over[op]) {
    if (pair.input == v && may_apply(graph, pair)) return graph.overlap(pair);
  }
  return Bytes();
}

bool may_apply(const Graph& graph, const Over& pair) {
  return !graph.kept[pair.input] || graph.recomputable[graph.producer[pair.input]];
}

}  // namespace remat
