#include "pipeline/part.h"

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <tuple>

#include "base/numbers.h"
#include "model/op_copy.h"

namespace remat::pipeline {
namespace {

class Builder {
 public:
  Builder(std::span<const Placed> placed, int state, bool named)
      : placed_(placed), named_(named), builder_(named ? "stage" : "", time_unit(placed)) {
    Bytes gradients;
    for (const Placed& one : placed) {
      for (ValueId v : one.block->held) {
        if (statics_.contains({one.block->graph, one.block->source, v})) continue;
        const std::int64_t value = add_value(*one.block->graph, v);
        builder_.add_input(value);
        statics_[{one.block->graph, one.block->source, v}] = value;
      }
      gradients += one.block->gradients;
    }
    builder_.add_input(builder_.add_value(Bytes(gradients.count() * (1 + state)), named ? "gradients" : ""));
  }

  Part run(std::span<const Turn> turns) {
    for (const Turn& turn : turns) turn.backward ? backward(turn) : forward(turn);
    Part part;
    part.graph = builder_.build();
    for (std::int64_t step : plan_) part.plan.steps.push_back(OpId(step));
    part.turn = OpId(turn_);
    part.incoming = incoming_;
    part.origin = std::move(origin_);
    return part;
  }

 private:
  using Key = std::tuple<const Graph*, int, ValueId, int>;  // graph, which copy of it, value, micro-batch
  using OpKey = std::tuple<const Graph*, int, OpId, int>;

  static std::string time_unit(std::span<const Placed> placed) {
    return placed.front().block->graph->time_unit;
  }

  std::int64_t add_value(const Graph& graph, ValueId v) {
    return builder_.add_value(graph.bytes[v], named_ ? graph.value_name[v] : "", graph.copyable[v]);
  }
  static Key key(const Block& block, ValueId v, const Turn& turn) {
    return {block.graph, block.source, v, turn.microbatch};
  }

  /// True if two neighbouring blocks pass their value inside the part.
  bool joined(std::size_t before) const {
    if (before + 1 >= placed_.size()) return false;
    const Placed &a = placed_[before], &b = placed_[before + 1];
    return a.chunk == b.chunk && a.block->graph == b.block->graph && a.block->source == b.block->source &&
           a.block->sent && a.block->sent == b.block->received;
  }

  std::int64_t add_pseudo(std::string_view name, std::span<const std::int64_t> inputs,
                          std::span<const std::int64_t> outputs, Phase phase) {
    OpSpec op;
    op.name = named_ ? name : "";
    op.inputs = inputs;
    op.outputs = outputs;
    op.recomputable = false;
    op.phase = phase;
    origin_.push_back(-1);
    const std::int64_t made = builder_.add_op(op);
    plan_.push_back(made);
    return made;
  }

  void forward(const Turn& turn) {
    for (std::size_t i = 0; i < placed_.size(); ++i) {
      if (placed_[i].chunk != turn.chunk) continue;
      const Block& block = *placed_[i].block;
      std::vector<std::int64_t> received;
      for (ValueId v : block.data) receive(block, v, turn, received);
      if (block.received && !(i > 0 && joined(i - 1))) receive(block, block.received, turn, received);
      if (!received.empty()) add_pseudo("receive", {}, received, Phase::kForward);
      for (int k : indices(block.forward)) add_op(block, block.forward[at(k)], k, turn);
      run_steps(placed_[i], placed_[i].choice->first, turn);
      if (block.sent && !joined(i)) {
        const std::int64_t sent = values_.at(key(block, block.sent, turn));
        add_pseudo("send", std::span(&sent, 1), {}, Phase::kForward);
      }
    }
  }

  void receive(const Block& block, ValueId v, const Turn& turn, std::vector<std::int64_t>& received) {
    if (values_.contains(key(block, v, turn))) return;
    const std::int64_t value = add_value(*block.graph, v);
    values_[key(block, v, turn)] = value;
    received.push_back(value);
  }

  void backward(const Turn& turn) {
    bool begun = false;
    for (std::size_t i = placed_.size(); i-- > 0;) {
      if (placed_[i].chunk != turn.chunk) continue;
      const Placed& one = placed_[i];
      const Block& block = *one.block;
      if (!begun || (block.gradient_received && !joined(i))) begin_backward(block, turn);
      begun = true;
      if (one.choice->as_a_whole && !one.choice->saved_ops.empty()) hold(one, turn);
      const int forward_ops = narrow<int>(block.forward.size());
      for (int k : indices(block.backward)) add_op(block, block.backward[at(k)], forward_ops + k, turn);
      run_steps(one, one.choice->second, turn);
      if (block.gradient_sent && !(i > 0 && joined(i - 1))) {
        const std::int64_t sent = values_.at(key(block, block.gradient_sent, turn));
        add_pseudo("send", std::span(&sent, 1), {}, Phase::kBackward);
      }
    }
  }

  void begin_backward(const Block& block, const Turn& turn) {
    std::vector<std::int64_t> received;
    if (block.gradient_received) {
      receive(block, block.gradient_received, turn, received);
    } else {
      received.push_back(builder_.add_value(Bytes()));
    }
    const std::int64_t op = add_pseudo("turn", {}, received, Phase::kBackward);
    if (turn_ < 0) {
      turn_ = op;
      if (block.gradient_received) incoming_ = block.graph->bytes[block.gradient_received];
    }
  }

  /// A checkpoint holds what it saved until the block runs again, read or not.
  void hold(const Placed& one, const Turn& turn) {
    std::vector<std::int64_t> saved;
    for (int k : one.choice->saved_ops) {
      for (ValueId v : one.block->graph->outputs[one.block->forward[at(k)]]) {
        saved.push_back(values_.at(key(*one.block, v, turn)));
      }
    }
    add_pseudo("saved", saved, {}, Phase::kBackward);
  }

  void add_op(const Block& block, OpId op, int origin, const Turn& turn) {
    const Graph& graph = *block.graph;
    std::vector<std::int64_t> after;
    for (ValueId v : graph.outputs[op]) values_[key(block, v, turn)] = add_value(graph, v);
    for (OpId before : graph.after[op]) {
      const auto known = ops_.find({block.graph, block.source, before, turn.microbatch});
      if (known != ops_.end()) after.push_back(known->second);
    }
    const OpCopy copy(graph, op, [&](ValueId v) { return value_of(block, v, turn); });
    OpSpec spec = copy.spec();
    if (named_) {
      spec.name = graph.op_name[op];
      spec.kind = graph.op_kind[op];
      spec.module = graph.op_module[op];
      spec.source = graph.op_source[op];
    }
    spec.phase = origin < narrow<int>(block.forward.size()) ? Phase::kForward : Phase::kBackward;
    spec.after = after;
    ops_[{block.graph, block.source, op, turn.microbatch}] = builder_.add_op(spec);
    origin_.push_back(origin);
  }

  std::int64_t value_of(const Block& block, ValueId v, const Turn& turn) {
    if (const auto held = statics_.find({block.graph, block.source, v}); held != statics_.end())
      return held->second;
    return values_.at(key(block, v, turn));
  }

  void run_steps(const Placed& one, const std::vector<int>& steps, const Turn& turn) {
    const Block& block = *one.block;
    for (int step : steps) {
      const int forward_ops = narrow<int>(block.forward.size());
      const OpId op = step < forward_ops ? block.forward[at(step)] : block.backward[at(step - forward_ops)];
      plan_.push_back(ops_.at({block.graph, block.source, op, turn.microbatch}));
    }
  }

  std::span<const Placed> placed_;
  bool named_;
  GraphBuilder builder_;
  std::map<std::tuple<const Graph*, int, ValueId>, std::int64_t> statics_;
  std::map<Key, std::int64_t> values_;
  std::map<OpKey, std::int64_t> ops_;
  std::vector<std::int64_t> plan_;
  std::vector<int> origin_;
  std::int64_t turn_ = -1;
  Bytes incoming_;
};

}  // namespace

Part build_part(std::span<const Placed> placed, std::span<const Turn> turns, int state, bool named) {
  return Builder(placed, state, named).run(turns);
}

std::vector<Turn> turns_in_flight(int count) {
  std::vector<Turn> turns;
  for (int i = 0; i < count; ++i) turns.push_back({i, 0, false});
  for (int i = 0; i < count; ++i) turns.push_back({i, 0, true});
  return turns;
}

Bytes held_by(std::span<const Placed> placed, int state) {
  std::set<std::tuple<const Graph*, int, ValueId>> seen;
  Bytes sum;
  for (const Placed& one : placed) {
    for (ValueId v : one.block->held) {
      if (seen.emplace(one.block->graph, one.block->source, v).second) sum += one.block->graph->bytes[v];
    }
    sum += Bytes(one.block->gradients.count() * (1 + state));
  }
  return sum;
}

BlockChoice keep_all(const Block& block) {
  BlockChoice choice;
  const int forward_ops = narrow<int>(block.forward.size());
  for (int k : indices(block.forward)) choice.first.push_back(k);
  for (int k : indices(block.backward)) choice.second.push_back(forward_ops + k);
  return choice;
}

}  // namespace remat::pipeline
