#include "generate/lower.h"

#include <algorithm>
#include <array>
#include <string>
#include <tuple>
#include <vector>

#include "base/numbers.h"
#include "generate/cost.h"

namespace remat::generate {
namespace {

class Lowering {
 public:
  Lowering(const Program& program, const LoweringOptions& options)
      : p_(program), options_(options), builder_(options.name, options.device ? "ns" : "") {}

  Graph run() {
    find_storages();
    find_live_nodes();
    if (p_.primitives()) update_early();
    group_nodes();
    find_group_outputs();
    add_inputs();
    for (std::size_t g = 0; g < groups_.size(); ++g) add_op(g);
    for (Tensor t : p_.kept) builder_.add_output(value_[storage_[t]]);
    return builder_.build();
  }

 private:
  /// Nodes [begin, end) of live_ that become one op.
  struct Group {
    std::size_t begin, end;
  };

  bool is_view(Node n) const { return p_.nodes[n].code == Code::kReshape && !p_.primitives(); }
  bool draws(Code c) const { return c == Code::kDropout || c == Code::kRandom; }
  void find_storages();
  void find_live_nodes();
  void update_early();
  void group_nodes();
  void find_group_outputs();
  void add_inputs();
  void add_op(std::size_t group);
  std::string name_of(const Group& group);
  Bytes workspace_of(const Group& group) const;
  std::int64_t forward_of(const Group& group) const;

  const Program& p_;
  const LoweringOptions& options_;
  GraphBuilder builder_;
  IndexVector<Tensor, Tensor> storage_;  ///< the tensor whose bytes a tensor shows
  std::vector<Node> live_;               ///< nodes that become ops, in order
  std::vector<Group> groups_;
  IndexVector<Node, std::int32_t> group_of_;  ///< -1: no op
  IndexVector<Tensor, bool> visible_;         ///< storages that leave their group
  IndexVector<Tensor, std::int64_t> value_;   ///< graph value of a storage
  std::array<std::int64_t, 256> count_by_code_{};
  std::vector<std::int64_t> inputs_, outputs_;
};

void Lowering::find_storages() {
  storage_.assign(p_.tensors.size(), Tensor::none());
  for (Tensor t : p_.tensors.ids()) {
    const Node n = p_.tensors[t].producer;
    storage_[t] = n && is_view(n) ? storage_[p_.input(n, 0)] : t;
  }
}

void Lowering::find_live_nodes() {
  IndexVector<Tensor, bool> used(p_.tensors.size(), false);
  for (Tensor t : p_.kept) used[t] = true;
  std::vector<Node> backwards;
  for (auto i = std::ssize(p_.nodes) - 1; i >= 0; --i) {
    const Node n(i);
    const auto outs = p_.outputs[n];
    if (std::none_of(outs.begin(), outs.end(), [&](Tensor t) { return used[t]; })) continue;
    for (Tensor t : p_.inputs[n]) used[t] = true;
    if (!is_view(n)) backwards.push_back(n);
  }
  live_.assign(backwards.rbegin(), backwards.rend());
}

/// TensorFlow runs an update as soon as its gradient is ready, and ops that only an update reads just before
/// it. With all updates at the end, every gradient would be alive until then.
void Lowering::update_early() {
  const auto is_update = [&](Node n) { return p_.nodes[n].phase == Phase::kUpdate; };
  // The place among the other nodes: behind the last of them that the update depends on.
  IndexVector<Node, std::int64_t> place(p_.nodes.size(), -1);
  for (Node n : live_) {
    if (!is_update(n)) {
      place[n] = n.index();
      continue;
    }
    for (Tensor t : p_.inputs[n]) {
      if (const Node maker = p_.tensors[t].producer) place[n] = std::max(place[n], place[maker]);
    }
  }
  const auto last = std::ssize(p_.nodes);
  IndexVector<Node, std::int64_t> first_reader(p_.nodes.size(), last);
  for (auto n = live_.rbegin(); n != live_.rend() && is_update(*n); ++n) {
    if (place[*n] < 0) place[*n] = first_reader[*n];
    for (Tensor t : p_.inputs[*n]) {
      const Node maker = p_.tensors[t].producer;
      if (maker && is_update(maker)) first_reader[maker] = std::min(first_reader[maker], place[*n]);
    }
  }
  std::stable_sort(live_.begin(), live_.end(), [&](Node a, Node b) {
    return std::tuple(place[a], is_update(a)) < std::tuple(place[b], is_update(b));
  });
}

void Lowering::group_nodes() {
  const auto key = [&](Node n) {
    const NodeInfo& info = p_.nodes[n];
    return std::pair(info.layer, info.phase);
  };
  group_of_.assign(p_.nodes.size(), -1);
  for (std::size_t i = 0; i < live_.size(); ++i) {
    const bool joins = options_.by_layer && i > 0 && key(live_[i]) == key(live_[i - 1]);
    if (!joins) groups_.push_back({i, i});
    groups_.back().end = i + 1;
    group_of_[live_[i]] = narrow<std::int32_t>(groups_.size()) - 1;
  }
}

/// Without grouping every storage is seen; otherwise those that are read elsewhere or kept.
void Lowering::find_group_outputs() {
  visible_.assign(p_.tensors.size(), !options_.by_layer);
  if (!options_.by_layer) return;
  for (Tensor t : p_.kept) visible_[storage_[t]] = true;
  for (Node n : live_) {
    for (Tensor t : p_.inputs[n]) {
      const Node maker = p_.tensors[storage_[t]].producer;
      if (maker && group_of_[maker] != group_of_[n]) visible_[storage_[t]] = true;
    }
  }
}

void Lowering::add_inputs() {
  value_.assign(p_.tensors.size(), -1);
  IndexVector<Tensor, bool> read(p_.tensors.size(), false);
  for (Node n : live_) {
    for (Tensor t : p_.inputs[n]) read[storage_[t]] = true;
  }
  for (Tensor t : p_.kept) read[storage_[t]] = true;
  for (std::size_t i = 0; i < p_.program_inputs.size(); ++i) {
    const Tensor t = p_.program_inputs[i];
    if (!read[t]) continue;
    value_[t] = builder_.add_value(Bytes(p_.tensors[t].bytes()), p_.input_names[i]);
    builder_.add_input(value_[t]);
  }
}

std::string Lowering::name_of(const Group& group) {
  const NodeInfo& first = p_.nodes[live_[group.begin]];
  if (options_.by_layer) {
    std::string name = p_.modules[at(first.module)];
    if (first.phase == Phase::kBackward || first.phase == Phase::kUpdate) {
      name.append(1, '.').append(to_string(first.phase));
    }
    return name;
  }
  std::string name(to_string(first.code));
  const std::int64_t count = count_by_code_[at(first.code)]++;
  return count == 0 ? name : name.append(1, '_').append(std::to_string(count));
}

/// Peak of a group beyond its inputs and outputs.
Bytes Lowering::workspace_of(const Group& group) const {
  if (group.end - group.begin == 1) return Bytes(0);
  struct Life {
    Tensor storage;
    std::size_t first, last;
  };
  std::vector<Life> lives;
  for (std::size_t i = group.begin; i < group.end; ++i) {
    for (Tensor t : p_.inputs[live_[i]]) {
      for (Life& life : lives) {
        if (life.storage == storage_[t]) life.last = i;
      }
    }
    for (Tensor t : p_.outputs[live_[i]]) {
      if (!visible_[t]) lives.push_back({t, i, i});
    }
  }
  Wide most = 0;
  for (std::size_t i = group.begin; i < group.end; ++i) {
    Wide now = 0;
    for (const Life& life : lives) {
      if (life.first <= i && i <= life.last) now += p_.tensors[life.storage].bytes();
    }
    most = std::max(most, now);
  }
  return Bytes(capped(most));
}

/// The op of the first forward node that any node of the group differentiates, or -1. For a view that is
/// the op that made what it shows.
std::int64_t Lowering::forward_of(const Group& group) const {
  for (std::size_t i = group.begin; i < group.end; ++i) {
    Node forward = p_.nodes[live_[i]].forward_of;
    while (forward && is_view(forward)) forward = p_.tensors[p_.input(forward, 0)].producer;
    if (forward && group_of_[forward] >= 0) return group_of_[forward];
  }
  return -1;
}

void Lowering::add_op(std::size_t index) {
  const Group& group = groups_[index];
  inputs_.clear();
  outputs_.clear();
  OpSpec op;
  for (std::size_t i = group.begin; i < group.end; ++i) {
    const Node n = live_[i];
    for (Tensor t : p_.inputs[n]) {
      if (value_[storage_[t]] >= 0) inputs_.push_back(value_[storage_[t]]);
    }
    const Duration more = options_.device ? roofline(p_, n, *options_.device) : Duration(1);
    op.duration = Duration(capped(Wide{op.duration.count()} + more.count()));
    op.recomputable = op.recomputable && p_.nodes[n].phase != Phase::kUpdate &&
                      (options_.random_recomputable || !draws(p_.nodes[n].code));
  }
  for (std::size_t i = group.begin; i < group.end; ++i) {
    for (Tensor t : p_.outputs[live_[i]]) {
      if (visible_[t]) outputs_.push_back(value_[t] = builder_.add_value(Bytes(p_.tensors[t].bytes())));
    }
  }
  const NodeInfo& first = p_.nodes[live_[group.begin]];
  const std::string name = name_of(group);
  op.name = name;
  op.kind = options_.by_layer ? std::string_view("layer") : to_string(first.code);
  op.module = p_.modules[at(first.module)];
  op.phase = first.phase;
  op.workspace = workspace_of(group);
  op.forward_of = forward_of(group);
  op.inputs = inputs_;
  op.outputs = outputs_;
  builder_.add_op(op);
}

}  // namespace

Graph lower(const Program& program, const LoweringOptions& options) {
  return Lowering(program, options).run();
}

}  // namespace remat::generate
