#include "exact/unrolled.h"

#include <algorithm>
#include <utility>

#include "base/numbers.h"
#include "base/sorted.h"
#include "model/step.h"

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
    bytes += 2 * Wide{rerun_state(graph, item.op).count()};
    duration += graph.duration[item.op].count();
    workspace = std::max(workspace, momentary(graph, item.op));
  }
  return std::max(bytes + workspace.count(), duration) < kMaxCount;
}

/// Fills the columns directly: `lns` unrolls thousands of scripts a second, and scripts satisfy all that
/// GraphBuilder checks.
class Unroller {
 public:
  Unroller(const Graph& graph, const Script& script, const FetchPrices* prices)
      : from_(graph),
        script_(script),
        prices_(prices),
        newest_(graph.num_values()),
        states_(graph.num_ops()),
        runs_(graph.num_ops(), 0) {}

  Unrolled run() {
    reserve();
    for (ValueId v : from_.graph_inputs) {
      to_.graph_inputs.push_back(add_instance(v, OpId::none()));
      to_.resident += from_.bytes[v];
    }
    for (const Item& item : script_) {
      if (item.op) ++runs_[item.op];
    }
    for (const Item& item : script_) item.op ? add_run(item.op) : add_fetch(item.fetched);
    for (ValueId v : from_.graph_outputs) {
      to_.graph_outputs.push_back(newest_[v]);
      to_.kept[newest_[v]] = true;
    }
    std::ranges::sort(to_.graph_outputs);
    finish();
    return std::move(all_);
  }

 private:
  void reserve() {
    const std::size_t ops = script_.size();
    to_.duration.reserve(ops);
    to_.workspace.reserve(ops);
    to_.recomputable.reserve(ops);
  }

  ValueId add_value(ValueId v, Bytes bytes, OpId maker) {
    all_.value.push_back(v);
    if (prices_) all_.prices.push_back(v ? (*prices_)[v] : kMaxCount);
    to_.producer.push_back(maker);
    to_.kept.push_back(false);
    return to_.bytes.push_back(bytes);
  }
  ValueId add_instance(ValueId v, OpId maker) { return newest_[v] = add_value(v, from_.bytes[v], maker); }
  OpId next_op() const { return OpId(std::ssize(to_.duration)); }

  void add_fetch(ValueId v) {
    to_.outputs.push(add_instance(v, next_op()));
    add_op(Duration((*prices_)[v]), Bytes(), true);
  }

  void add_run(OpId op) {
    for (ValueId v : from_.inputs[op]) inputs_.push_back(newest_[v]);
    for (const Over& pair : from_.over[op]) over_.push_back({newest_[pair.input], pair.output});
    for (ValueId v : from_.outputs[op]) to_.outputs.push(add_instance(v, next_op()));
    for (Over& pair : over_) pair.output = newest_[pair.output];
    Bytes workspace = momentary(from_, op);
    if (const Bytes state = rerun_state(from_, op); state > Bytes() && runs_[op] > 1) {
      if (!states_[op]) {
        to_.outputs.push(states_[op] = add_value(ValueId::none(), state, next_op()));
      } else {
        inputs_.push_back(states_[op]);
        workspace += state;
      }
    }
    sort_unique(inputs_);
    std::ranges::sort(over_, {}, &Over::input);
    add_op(from_.duration[op], workspace, from_.recomputable[op]);
  }

  void add_op(Duration duration, Bytes workspace, bool recomputable) {
    to_.inputs.append_row(inputs_);
    to_.over.append_row(over_);
    to_.outputs.end_row();
    inputs_.clear();
    over_.clear();
    to_.duration.push_back(duration);
    to_.workspace.push_back(workspace);
    to_.recomputable.push_back(recomputable);
    to_.base_duration += duration;
  }

  /// Fills the columns that are empty in the new graph.
  void finish() {
    const std::size_t ops = script_.size(), values = to_.bytes.size();
    to_.name = from_.name;
    to_.time_unit = from_.time_unit;
    to_.copyable.assign(values, true);
    to_.generator_state.assign(ops, Bytes());
    to_.phase.assign(ops, Phase::kNone);
    to_.forward_of.assign(ops, OpId::none());
    for (std::size_t i = 0; i < ops; ++i) to_.after.end_row();
    to_.value_name.append_empty(values);
    for (auto* column : {&to_.op_name, &to_.op_kind, &to_.op_module, &to_.op_source})
      column->append_empty(ops);
    to_.readers = Rows<OpId, ValueId>::transpose(to_.inputs, values);
  }

  const Graph& from_;
  const Script& script_;
  const FetchPrices* prices_;
  Unrolled all_;
  Graph& to_ = all_.graph;
  IndexVector<ValueId, ValueId> newest_;  ///< instance by value
  IndexVector<OpId, ValueId> states_;
  IndexVector<OpId, int> runs_;
  std::vector<ValueId> inputs_;
  std::vector<Over> over_;
};

}  // namespace

std::optional<Unrolled> unrolled(const Graph& graph, const Script& script, const FetchPrices* prices) {
  if (!can_unroll(graph, script, prices)) return std::nullopt;
  return Unroller(graph, script, prices).run();
}

}  // namespace remat
