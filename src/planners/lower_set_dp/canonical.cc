#include "planners/lower_set_dp/canonical.h"

#include <algorithm>

#include "planners/polish/polish.h"

namespace remat::canonical {

ForwardGraph forward_graph(const Graph& graph, const Pairing& pairing) {
  ForwardGraph result;
  const auto n = static_cast<std::size_t>(pairing.first_backward.index());
  result.before.resize(n);
  result.after.resize(n);
  for (std::size_t i = 0; i < n; ++i) {
    const OpId op(static_cast<std::int64_t>(i));
    for (OpId p : predecessors(graph, op)) {
      result.before[i].push_back(p.index());
      result.after[static_cast<std::size_t>(p.index())].push_back(op.index());
    }
    std::int64_t bytes = 0;
    for (ValueId v : graph.outputs[op]) {
      if (!graph.readers[v].empty()) bytes += graph.bytes[v].count();
    }
    result.bytes.push_back(bytes);
    result.time.push_back(graph.duration[op].count());
  }
  return result;
}

Plan plan_for_parts(const Graph& graph, const Pairing& pairing, const std::vector<std::int32_t>& part) {
  const auto n = part.size();
  const std::int32_t last = n == 0 ? 0 : *std::max_element(part.begin(), part.end());
  const auto part_of = [&](OpId op) { return part[static_cast<std::size_t>(op.index())]; };
  std::vector<std::vector<OpId>> again(static_cast<std::size_t>(last) + 1);
  std::vector<bool> dropped(n, false);
  for (std::size_t i = 0; i < n; ++i) {
    const OpId op(static_cast<std::int64_t>(i));
    bool boundary = false;
    for (ValueId v : graph.outputs[op]) {
      for (OpId reader : graph.readers[v]) {
        boundary = boundary || (reader < pairing.first_backward && part_of(reader) != part_of(op));
      }
    }
    if (boundary || !graph.recomputable[op] || part_of(op) == last) continue;
    dropped[i] = true;
    again[static_cast<std::size_t>(part_of(op))].push_back(op);
  }
  Plan plan;
  for (OpId op : graph.ops()) {
    if (op >= pairing.first_backward) {
      for (ValueId v : graph.inputs[op]) {
        const OpId maker = graph.producer[v];
        if (!maker || maker >= pairing.first_backward || !dropped[static_cast<std::size_t>(maker.index())])
          continue;
        auto& todo = again[static_cast<std::size_t>(part_of(maker))];
        for (OpId one : todo) plan.steps.push_back(one);
        todo.clear();
      }
    }
    plan.steps.push_back(op);
  }
  return polish::without_unread_steps(graph, plan);
}

}  // namespace remat::canonical
