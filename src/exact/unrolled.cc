#include "exact/unrolled.h"

#include <algorithm>
#include <array>
#include <vector>

#include "base/numbers.h"

namespace remat {
namespace {

bool can_unroll(const Graph& graph, const Script& script, const FetchPrices* prices) {
  Wide bytes = graph.resident.count(), duration = 0;
  Bytes workspace;
  for (const Item& item : script) {
    if (!item.op) {
      bytes += graph.bytes[item.fetched].count();
      duration += (*prices)[item.fetched];
      continue;
    }
    for (ValueId v : graph.outputs[item.op]) bytes += graph.bytes[v].count();
    bytes += 2 * Wide{graph.generator_state[item.op].count()};
    duration += graph.duration[item.op].count();
    workspace = std::max(workspace, graph.workspace[item.op]);
  }
  return std::max(bytes + workspace.count(), duration) < kMaxCount;
}

}  // namespace

std::optional<Unrolled> unrolled(const Graph& graph, const Script& script, const FetchPrices* prices) {
  if (!can_unroll(graph, script, prices)) return std::nullopt;
  Unrolled all;
  GraphBuilder builder(graph.name, graph.time_unit);
  IndexVector<ValueId, std::int64_t> newest(graph.num_values(), -1);
  const auto add_value = [&](ValueId v, Bytes bytes) {
    all.value.push_back(v);
    if (prices) all.prices.push_back(v ? (*prices)[v] : kMaxCount);
    return builder.add_value(bytes);
  };
  const auto add_instance = [&](ValueId v) { return newest[v] = add_value(v, graph.bytes[v]); };
  for (ValueId v : graph.graph_inputs) builder.add_input(add_instance(v));
  std::vector<std::int64_t> inputs, outputs;
  std::vector<std::array<std::int64_t, 2>> over;
  IndexVector<OpId, std::int64_t> runs(graph.num_ops(), 0), states(graph.num_ops(), -1);
  for (const Item& item : script) {
    if (item.op) ++runs[item.op];
  }
  for (const Item& item : script) {
    inputs.clear();
    outputs.clear();
    over.clear();
    if (!item.op) {
      outputs.push_back(add_instance(item.fetched));
      builder.add_op({.name = {}, .duration = Duration((*prices)[item.fetched]), .outputs = outputs});
      continue;
    }
    const OpId op = item.op;
    for (const Over& pair : graph.over[op]) over.push_back({newest[pair.input], -1});
    for (ValueId v : graph.inputs[op]) inputs.push_back(newest[v]);
    for (ValueId v : graph.outputs[op]) outputs.push_back(add_instance(v));
    for (std::size_t i = 0; i < over.size(); ++i) over[i][1] = newest[graph.over[op][i].output];
    Bytes workspace = graph.workspace[op];
    if (const Bytes state = graph.generator_state[op]; state > Bytes() && runs[op] > 1) {
      if (states[op] < 0) {
        outputs.push_back(states[op] = add_value(ValueId::none(), state));
      } else {
        inputs.push_back(states[op]);
        workspace += state;
      }
    }
    builder.add_op({.name = {},
                    .duration = graph.duration[op],
                    .workspace = workspace,
                    .recomputable = graph.recomputable[op],
                    .inputs = inputs,
                    .outputs = outputs,
                    .over = over});
  }
  for (ValueId v : graph.graph_outputs) builder.add_output(newest[v]);
  all.graph = builder.build();
  return all;
}

}  // namespace remat
