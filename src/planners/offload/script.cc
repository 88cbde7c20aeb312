#include "planners/offload/script.h"

#include <algorithm>

#include "base/numbers.h"

namespace remat::offload {

Script script_of(const Graph& graph, const Plan& steps, const IndexVector<ValueId, bool>& chosen) {
  struct Gap {
    Wide begins = 0, length = -1;
    StepId next;
  };
  IndexVector<ValueId, Gap> best(graph.num_values());
  IndexVector<ValueId, StepId> last(graph.num_values());
  IndexVector<ValueId, Wide> used(graph.num_values(), 0);
  const StepId end(std::ssize(steps.steps));
  Wide now = 0;
  const auto close = [&](ValueId v, StepId step) {
    if (!chosen[v] || !graph.copyable[v] || graph.is_graph_input(v) || last[v].next() >= step) return;
    if (now - used[v] > best[v].length) best[v] = {used[v], now - used[v], step};
  };
  for (StepId step : steps.steps.ids()) {
    const OpId op = steps.steps[step];
    const Wide ends = now + graph.duration[op].count();
    for (ValueId v : graph.inputs[op]) {
      close(v, step);
      last[v] = step;
      used[v] = ends;
    }
    for (ValueId v : graph.outputs[op]) {
      last[v] = step;
      used[v] = ends;
    }
    now = ends;
  }
  for (ValueId v : graph.graph_outputs) close(v, end);
  IndexVector<StepId, std::vector<ValueId>> fetches(at(end) + 1);
  for (ValueId v : graph.values()) {
    if (best[v].next) fetches[best[v].next].push_back(v);
  }
  Script script;
  for (StepId step(0); step <= end; ++step) {
    for (ValueId v : fetches[step]) script.push_back({OpId::none(), v});
    if (step < end) script.push_back({steps.steps[step], ValueId::none()});
  }
  return script;
}

IndexVector<ValueId, bool> fetched_values(const Graph& graph, const Script& script) {
  IndexVector<ValueId, bool> fetched(graph.num_values(), false);
  for (const Item& item : script) {
    if (!item.op) fetched[item.fetched] = true;
  }
  return fetched;
}

}  // namespace remat::offload
