#include "planners/offload/fetch_graph.h"

#include <algorithm>
#include <array>

#include "base/numbers.h"
#include "model/op_copy.h"

namespace remat::offload {

FetchGraph::FetchGraph(const Graph& graph, const IndexVector<ValueId, bool>& chosen, const Host& host,
                       double price)
    : original_(graph), run_(graph.num_ops()), fetch_run_(graph.num_values()) {
  const CopyClock clock(graph, host);
  GraphBuilder builder(graph.name, graph.time_unit);
  for (ValueId v : graph.values()) builder.add_value(graph.bytes[v]);
  for (ValueId v : graph.graph_inputs) builder.add_input(v.index());
  std::vector<std::int64_t> after;
  std::vector<std::pair<ValueId, std::int64_t>> fetched;  // a value and its token
  for (OpId op : graph.ops()) {
    after.clear();
    fetched.clear();
    for (ValueId v : graph.outputs[op]) {
      if (chosen[v] && graph.copyable[v]) fetched.emplace_back(v, builder.add_value(Bytes()));
    }
    OpCopy copy(graph, op, [&](ValueId v) -> std::int64_t {
      const auto mark = std::ranges::find(fetched, v, [](const auto& pair) { return pair.first; });
      return mark == fetched.end() ? v.index() : mark->second;
    });
    for (const auto& [v, mark] : fetched) copy.add_momentary(graph.bytes[v]);
    for (const auto& [v, mark] : fetched) copy.reuse_elsewhere(mark);
    for (OpId before : graph.after[op]) after.push_back(run_[before].index());
    run_[op] = item_.push_back({op, ValueId::none()});
    OpSpec spec = copy.spec();
    spec.after = after;
    builder.add_op(spec);
    for (const auto& [v, mark] : fetched) {
      const double takes = price * real(clock.time(Way::kIn, graph.bytes[v]));
      const std::array<std::int64_t, 1> reads{mark}, makes{v.index()};
      fetch_run_[v] = item_.push_back({OpId::none(), v});
      builder.add_op({.name = {},
                      .duration = Duration(1 + static_cast<std::int64_t>(std::min(takes, 0x1p40))),
                      .inputs = reads,
                      .outputs = makes});
    }
  }
  for (ValueId v : graph.graph_outputs) builder.add_output(v.index());
  fetch_ = builder.build();
}

Plan FetchGraph::plan_of(const Script& script) const {
  Plan plan;
  for (const Item& item : script) {
    if (!item.op) {
      if (fetch_run_[item.fetched]) plan.steps.push_back(fetch_run_[item.fetched]);
      continue;
    }
    plan.steps.push_back(run_[item.op]);
    for (ValueId v : original_.outputs[item.op]) {
      if (fetch_run_[v]) plan.steps.push_back(fetch_run_[v]);
    }
  }
  return plan;
}

Script FetchGraph::script_of(const Plan& plan) const {
  Script script;
  IndexVector<ValueId, bool> is_made(original_.num_values(), false);
  for (OpId run : plan.steps) {
    const Item& item = item_[run];
    if (item.op || is_made[item.fetched]) script.push_back(item);
    if (!item.op) is_made[item.fetched] = true;
  }
  return script;
}

}  // namespace remat::offload
