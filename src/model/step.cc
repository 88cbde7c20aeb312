#include "model/step.h"

#include <algorithm>

namespace remat {

Bytes reuse_of(const Graph& graph, OpId op, ValueId input) {
  for (const Reuse& reuse : reuses(graph, op)) {
    if (reuse.input == input) return reuse.bytes;
  }
  return Bytes();
}

bool may_end(const Graph& graph, ValueId value) {
  return !graph.kept[value] || graph.recomputable[graph.producer[value]];
}

Bytes room_for_rerun_states(const Graph& graph) {
  Bytes held, largest;
  for (OpId op : graph.ops()) {
    if (!graph.recomputable[op]) continue;
    held += rerun_state(graph, op);
    largest = std::max(largest, rerun_state(graph, op));
  }
  return held + largest;
}

Bytes need_of(const Graph& graph, OpId op) {
  Bytes sum = graph.resident + momentary(graph, op);
  for (ValueId v : graph.outputs[op]) sum += graph.bytes[v];
  for (ValueId v : graph.inputs[op]) {
    if (!graph.is_graph_input(v)) sum += graph.bytes[v];
  }
  for (const Reuse& reuse : reuses(graph, op)) {
    if (may_end(graph, reuse.input)) sum -= reuse.bytes;
  }
  return sum;
}

Bytes bytes_beside(const Graph& graph, OpId op, ValueId value) {
  const auto inputs = graph.inputs[op];
  if (!std::binary_search(inputs.begin(), inputs.end(), value)) return graph.bytes[value];
  const Bytes reuse = reuse_of(graph, op, value);
  return reuse > Bytes() && may_end(graph, value) ? reuse : Bytes();
}

std::vector<Extra> extras(const Graph& graph, const Plan& plan) {
  std::vector<Extra> found;
  const auto add = [&](StepId first, StepId end, Bytes bytes) {
    if (bytes > Bytes()) found.push_back({first, end, bytes});
  };
  for (StepId step : plan.steps.ids()) add(step, step.next(), momentary(graph, plan.steps[step]));
  if (!has_rerun_states(graph)) return found;
  IndexVector<OpId, StepId> first(graph.num_ops()), last(graph.num_ops());
  for (StepId step : plan.steps.ids()) {
    const OpId op = plan.steps[step];
    if (!first[op]) {
      first[op] = step;
    } else {
      add(step, step.next(), rerun_state(graph, op));
    }
    last[op] = step;
  }
  for (OpId op : graph.ops()) {
    if (first[op] != last[op]) add(first[op], last[op].next(), rerun_state(graph, op));
  }
  return found;
}

IndexVector<StepId, Bytes> extra_bytes(const Graph& graph, const Plan& plan) {
  IndexVector<StepId, Bytes> bytes(plan.steps.size() + 1);
  for (const Extra& extra : extras(graph, plan)) {
    bytes[extra.first] += extra.bytes;
    bytes[extra.end] -= extra.bytes;
  }
  Bytes sum;
  for (Bytes& at_step : bytes) at_step = sum += at_step;
  bytes.raw().pop_back();
  return bytes;
}

}  // namespace remat
