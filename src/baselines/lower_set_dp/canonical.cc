#include "baselines/lower_set_dp/canonical.h"

#include <algorithm>

#include "base/numbers.h"
#include "polish/polish.h"

namespace remat::canonical {

ForwardGraph forward_graph(const Graph& graph, const Pairing& pairing) {
  ForwardGraph result;
  const auto n = narrow<std::size_t>(pairing.first_backward.index());
  result.before.resize(n);
  result.after.resize(n);
  for (std::size_t i = 0; i < n; ++i) {
    const OpId op(static_cast<std::int64_t>(i));
    for (OpId p : predecessors(graph, op)) {
      result.before[i].push_back(p.index());
      result.after[at(p)].push_back(op.index());
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
  const auto part_of = [&](OpId op) { return part[at(op)]; };
  std::vector<std::vector<OpId>> again(narrow<std::size_t>(last) + 1);
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
    again[at(part_of(op))].push_back(op);
  }
  Plan plan;
  for (OpId op : graph.ops()) {
    if (op >= pairing.first_backward) {
      for (ValueId v : graph.inputs[op]) {
        const OpId maker = graph.producer[v];
        if (!maker || maker >= pairing.first_backward || !dropped[at(maker)]) continue;
        auto& todo = again[at(part_of(maker))];
        for (OpId one : todo) plan.steps.push_back(one);
        todo.clear();
      }
    }
    plan.steps.push_back(op);
  }
  return polish::without_unread_steps(graph, plan);
}

std::int64_t formula_peak(const ForwardGraph& graph, const std::vector<std::int32_t>& part) {
  const auto at = [](std::int32_t i) { return narrow<std::size_t>(i); };
  const std::size_t parts = part.empty() ? 0 : 1 + at(*std::max_element(part.begin(), part.end()));
  // No edge leads to an earlier part, so each term of a node counts for consecutive parts.
  std::vector<std::int32_t> first_read(part);  // the first part that holds an input of the node
  for (std::size_t v = 0; v < graph.size(); ++v) {
    for (std::int32_t p : graph.before[v]) first_read[v] = std::min(first_read[v], part[at(p)]);
  }
  std::vector<Wide> own(parts, 0), boundary(parts, 0), outside_change(parts + 1, 0);
  for (std::size_t v = 0; v < graph.size(); ++v) {
    const Wide bytes = graph.bytes[v];
    own[at(part[v])] += bytes;
    bool leaves = false;
    std::int32_t needed = part[v];  // the first part after which an open node reads v too
    for (std::int32_t s : graph.after[v]) {
      leaves = leaves || part[at(s)] > part[v];
      needed = std::min(needed, first_read[at(s)]);
    }
    if (leaves) boundary[at(part[v])] += bytes;
    // Nodes of later parts that read this or an earlier one, and what else these read.
    for (std::int32_t from : {first_read[v], needed}) {
      outside_change[at(from)] += bytes;
      outside_change[at(part[v])] -= bytes;
    }
  }
  Wide most = 0, kept = 0, outside = 0;
  for (std::size_t here = 0; here < parts; ++here) {
    outside += outside_change[here];
    most = std::max(most, kept + 2 * own[here] + outside);
    kept += boundary[here];
  }
  return capped(most);
}

}  // namespace remat::canonical
