#include "graph/need.h"

namespace remat {

Bytes need_of(const Graph& graph, OpId op) {
  Bytes sum = graph.resident + graph.workspace[op];
  for (ValueId v : graph.outputs[op]) sum += graph.bytes[v];
  for (ValueId v : graph.inputs[op]) {
    if (!graph.is_graph_input(v)) sum += graph.bytes[v];
  }
  return sum;
}

}  // namespace remat
