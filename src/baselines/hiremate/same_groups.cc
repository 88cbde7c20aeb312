#include "baselines/hiremate/same_groups.h"

#include <algorithm>
#include <map>

#include "base/numbers.h"
#include "model/step.h"

namespace remat::hiremate {
namespace {

class Form {
 public:
  Form(const TrainingGraph& training, std::vector<OpId> ops)
      : graph_(*training.graph), training_(training), ops_(std::move(ops)) {}

  std::vector<std::int64_t> run() {
    for (OpId op : ops_) add_op(op);
    return std::move(form_);
  }

 private:
  bool inside(OpId op) const { return std::binary_search(ops_.begin(), ops_.end(), op); }
  std::int64_t local(OpId op) const { return std::lower_bound(ops_.begin(), ops_.end(), op) - ops_.begin(); }

  void add_op(OpId op) {
    form_.insert(form_.end(), {-1, graph_.duration[op].count(), momentary(graph_, op).count(),
                               std::int64_t{graph_.recomputable[op]}, std::int64_t{training_.is_forward(op)},
                               local_layer(op)});
    std::vector<std::vector<std::int64_t>> inputs;
    for (ValueId v : graph_.inputs[op]) inputs.push_back(source(v));
    // Where two inputs differ only in their number, the numbers of the values say nothing.
    std::sort(inputs.begin(), inputs.end());
    for (const auto& input : inputs) form_.insert(form_.end(), input.begin(), input.end());
    for (ValueId v : graph_.outputs[op]) add_output(v);
    std::vector<std::int64_t> after;
    for (OpId before : graph_.after[op]) {
      if (inside(before)) after.push_back(local(before));
    }
    form_.push_back(-2);
    form_.insert(form_.end(), after.begin(), after.end());
  }

  std::int64_t local_layer(OpId op) const {
    return inside(training_.layer[op]) ? local(training_.layer[op]) : -1;
  }

  /// A value made inside by op and output; one from outside by the order in which they come.
  std::vector<std::int64_t> source(ValueId v) {
    const OpId maker = graph_.producer[v];
    if (maker && inside(maker)) {
      const auto outputs = graph_.outputs[maker];
      return {0, local(maker), std::find(outputs.begin(), outputs.end(), v) - outputs.begin()};
    }
    const auto known = outside_.try_emplace(v, std::ssize(outside_)).first;
    const std::int64_t kind = !maker ? 1 : training_.is_forward(maker) ? 2 : 3;
    // Graph inputs are resident: their sizes never matter.
    return {kind, known->second, maker ? graph_.bytes[v].count() : 0};
  }

  void add_output(ValueId v) {
    bool forward = false, backward = false;
    for (OpId reader : graph_.readers[v]) {
      if (!inside(reader)) (training_.is_forward(reader) ? forward : backward) = true;
    }
    form_.insert(form_.end(), {4, graph_.bytes[v].count(), std::int64_t{graph_.kept[v]},
                               std::int64_t{forward}, std::int64_t{backward}});
  }

  const Graph& graph_;
  const TrainingGraph& training_;
  std::vector<OpId> ops_;
  std::map<ValueId, std::int64_t> outside_;
  std::vector<std::int64_t> form_;
};

}  // namespace

std::vector<OpId> ops_of(const TrainingGraph& training, const Partition& partition, GroupId group) {
  std::vector<OpId> ops;
  for (OpId layer : layers_of(partition, group)) {
    ops.push_back(layer);
    const auto backward = training.backward[layer];
    ops.insert(ops.end(), backward.begin(), backward.end());
  }
  std::sort(ops.begin(), ops.end());
  return ops;
}

IndexVector<GroupId, GroupId> representatives(const TrainingGraph& training, const Partition& partition,
                                              Limits& limits) {
  IndexVector<GroupId, GroupId> same(partition.groups.size());
  std::map<std::vector<std::int64_t>, GroupId> known;
  for (GroupId g : partition.groups.ids()) {
    same[g] = g;
    if (partition.groups[g].layer || g == partition.root || limits.reached()) continue;
    same[g] = known.try_emplace(Form(training, ops_of(training, partition, g)).run(), g).first->second;
  }
  return same;
}

Option translated(const Option& option, const std::vector<OpId>& from, const std::vector<OpId>& to) {
  Option result;
  result.solver = option.solver;
  const auto map = [&](const std::vector<OpId>& steps, std::vector<OpId>& into) {
    for (OpId op : steps) {
      into.push_back(to[at(std::lower_bound(from.begin(), from.end(), op) - from.begin())]);
    }
  };
  map(option.forward, result.forward);
  map(option.backward, result.backward);
  map(option.refresh, result.refresh);
  return result;
}

}  // namespace remat::hiremate
