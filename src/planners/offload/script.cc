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

Script without_unread(const Graph& graph, const Script& script) {
  std::vector<bool> is_first(script.size(), false);
  IndexVector<OpId, bool> has_run(graph.num_ops(), false);
  for (int i : indices(script)) {
    const OpId op = script[at(i)].op;
    if (!op) continue;
    is_first[at(i)] = !has_run[op];
    has_run[op] = true;
  }
  IndexVector<ValueId, bool> wanted = graph.kept;
  Script kept;
  for (std::size_t i = script.size(); i-- > 0;) {
    const Item& item = script[i];
    if (!item.op) {
      if (!wanted[item.fetched] || !graph.copyable[item.fetched]) continue;
      wanted[item.fetched] = false;
    } else {
      const auto outputs = graph.outputs[item.op];
      if (!is_first[i] && std::ranges::none_of(outputs, [&](ValueId v) { return wanted[v]; })) continue;
      for (ValueId v : outputs) wanted[v] = false;
      for (ValueId v : graph.inputs[item.op]) wanted[v] = true;
    }
    kept.push_back(item);
  }
  std::ranges::reverse(kept);
  return kept;
}

IndexVector<ValueId, bool> fetched_values(const Graph& graph, const Script& script) {
  IndexVector<ValueId, bool> fetched(graph.num_values(), false);
  for (const Item& item : script) {
    if (!item.op) fetched[item.fetched] = true;
  }
  return fetched;
}

}  // namespace remat::offload
