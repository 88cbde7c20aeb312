#include "plan/script.h"

#include <algorithm>

#include "base/numbers.h"

namespace remat {

Plan steps_of(const Script& script) {
  Plan plan;
  for (const Item& item : script) {
    if (item.op) plan.steps.push_back(item.op);
  }
  return plan;
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

}  // namespace remat
