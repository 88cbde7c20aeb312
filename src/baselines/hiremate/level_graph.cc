#include "baselines/hiremate/level_graph.h"

#include <algorithm>
#include <set>

#include "base/numbers.h"
#include "base/sorted.h"
#include "model/step.h"

namespace remat::hiremate {
namespace {

using Steps = std::vector<OpId>;

/// Data nodes of values, -1 for others.
using DataIndex = std::map<ValueId, int>;

int find(const DataIndex& index, ValueId v) {
  const auto found = index.find(v);
  return found == index.end() ? -1 : found->second;
}

/// Follows the instances of one run of steps.
class RunMeter {
 public:
  /// `found`: values of the member that are in memory before the run; `left`: those after it. `outputs`:
  /// data nodes that this run makes. Without `pruned`, moments that others dominate stay.
  RunMeter(const Graph& graph, const Steps& steps, const std::set<ValueId>& found,
           const std::set<ValueId>& left, const DataIndex& data, const std::set<int>& outputs, bool pruned,
           Limits* limits)
      : graph_(graph),
        steps_(steps),
        found_(found),
        left_(left),
        data_(data),
        outputs_(outputs),
        pruned_(pruned),
        limits_(limits),
        change_(steps.size() + 1, 0),
        gone_(steps.size() + 1) {}

  RunShape run() {
    const auto n = narrow<int>(steps_.size());
    for (int i = 0; i < n; ++i) step(i);
    for (const auto& [v, life] : lives_) close(v, life, n, true);
    for (ValueId v : found_) {
      if (!lives_.contains(v)) add(0, n, graph_.bytes[v].count());
    }
    std::vector<Moment> moments;
    std::int64_t own = 0;
    std::vector<int> released;
    for (int i = 0; i < n; ++i) {
      own += change_[at(i)];
      for (int d : gone_[at(i)]) released.push_back(d);
      std::sort(released.begin(), released.end());
      moments.push_back({own + momentary(graph_, steps_[at(i)]).count(), released});
    }
    shape_.moments = pruned_ ? without_dominated(std::move(moments)) : std::move(moments);
    std::sort(shape_.reads.begin(), shape_.reads.end());
    return std::move(shape_);
  }

 private:
  struct Life {
    int begin;  ///< -1: in memory before the run
    int last;   ///< last use, its making included
  };

  void step(int i) {
    const OpId op = steps_[at(i)];
    shape_.duration = std::min(kLongest, shape_.duration + graph_.duration[op].count());
    for (ValueId v : graph_.inputs[op]) {
      if (graph_.is_graph_input(v)) continue;
      const auto [life, is_new] = lives_.try_emplace(v, Life{-1, i});
      life->second.last = i;
      const int d = find(data_, v);
      if (is_new && d >= 0) shape_.reads.push_back(d);
    }
    for (ValueId v : graph_.outputs[op]) {
      const auto life = lives_.find(v);
      if (life != lives_.end()) close(v, life->second, i, false);
      lives_[v] = {i, i};
    }
  }

  void add(int begin, int end, std::int64_t bytes) {
    change_[at(begin)] += bytes;
    change_[at(end)] -= bytes;
  }

  /// The instance is used no more; `to_end`: it is the newest one.
  void close(ValueId v, const Life& life, int n, bool to_end) {
    const std::int64_t bytes = graph_.bytes[v].count();
    const int d = find(data_, v);
    const int after_last = life.last + 1;
    if (life.begin < 0) {
      if (found_.contains(v)) {
        add(0, to_end && left_.contains(v) ? n : after_last, bytes);
      } else if (d >= 0) {
        release(d, after_last);
      }
      return;
    }
    const bool stays = to_end && (graph_.kept[v] || left_.contains(v));
    add(life.begin, stays ? n : after_last, bytes);
    if (!stays && to_end && d >= 0 && outputs_.contains(d)) {
      made_[d] = bytes;
      release(d, after_last);
    }
  }
  void release(int d, int from) {
    if (from < narrow<int>(steps_.size())) gone_[at(from)].push_back(d);
  }

  /// An output that is released may be in memory after the run, and then it is all the same.
  std::int64_t at_most(const Moment& moment, const Moment& other) const {
    std::int64_t bytes = moment.own;
    for (int d : moment.released) {
      const auto made = made_.find(d);
      if (made != made_.end() && !std::binary_search(other.released.begin(), other.released.end(), d))
        bytes += made->second;
    }
    return bytes;
  }

  std::vector<Moment> without_dominated(std::vector<Moment> all) const {
    std::vector<Moment> left;
    // Cubic in the steps: seconds for a member of thousands. Nobody asks for what is left out then.
    for (std::size_t i = 0; i < all.size() && !(limits_ && limits_->reached()); ++i) {
      bool dominated = false;
      for (std::size_t j = 0; j < all.size() && !dominated; ++j) {
        if (i == j || all[j].own < at_most(all[i], all[j])) continue;
        const bool fewer = std::includes(all[i].released.begin(), all[i].released.end(),
                                         all[j].released.begin(), all[j].released.end());
        const bool same = all[j].own == all[i].own && all[j].released.size() == all[i].released.size();
        dominated = fewer && (!same || j < i);
      }
      if (!dominated) left.push_back(all[i]);
    }
    return left;
  }

  const Graph& graph_;
  const Steps& steps_;
  const std::set<ValueId>& found_;
  const std::set<ValueId>& left_;
  const DataIndex& data_;
  const std::set<int>& outputs_;
  const bool pruned_;
  Limits* limits_;
  RunShape shape_;
  std::map<ValueId, Life> lives_;
  std::map<int, std::int64_t> made_;  ///< bytes of the outputs
  std::vector<std::int64_t> change_;
  std::vector<std::vector<int>> gone_;
};

/// Values that the steps read before they make them.
std::vector<ValueId> read_first(const Graph& graph, std::initializer_list<const Steps*> parts) {
  std::set<ValueId> made, read;
  for (const Steps* steps : parts) {
    for (OpId op : *steps) {
      for (ValueId v : graph.inputs[op]) {
        if (!graph.is_graph_input(v) && !made.contains(v)) read.insert(v);
      }
      for (ValueId v : graph.outputs[op]) made.insert(v);
    }
  }
  return {read.begin(), read.end()};
}

/// Without corrections: all inputs and outputs are in memory during the whole run.
void flatten_moments(RunShape& run, const std::vector<DataNode>& data, const std::set<int>& outputs) {
  Moment worst;
  for (const Moment& moment : run.moments) {
    std::int64_t own = moment.own;
    for (int d : moment.released) {
      if (outputs.contains(d)) own += data[at(d)].bytes;
    }
    worst.own = std::max(worst.own, own);
  }
  run.moments.assign(1, worst);
}

class Builder {
 public:
  Builder(const Level& level, bool corrections, Limits* limits)
      : level_(level), graph_(*level.training->graph), corrections_(corrections), limits_(limits) {}

  LevelGraph run() {
    number_nodes();
    find_data();
    for (std::size_t m = 0; m < level_.members.size() && !stopped(); ++m) add_shapes(m);
    if (stopped()) return {};
    find_readers();
    return std::move(result_);
  }

 private:
  bool stopped() const { return limits_ && limits_->reached(); }

  void number_nodes() {
    const auto m = narrow<int>(level_.members.size());
    result_.turn = m;
    result_.members.resize(level_.members.size());
    for (int i = 0; i < m; ++i) {
      result_.member_of.push_back(i);
      const Member& member = level_.members[at(i)];
      for (OpId op : member.forward) node_[op] = i;
      for (OpId op : member.backward) node_[op] = -1 - i;
    }
    result_.member_of.push_back(-1);
    // Backward nodes in the order of the level's backward ops, where members are contiguous.
    for (OpId op : level_.backward) {
      const int i = -1 - node_.at(op);
      int& node = result_.members[at(i)].backward_node;
      if (node >= 0) continue;
      node = result_.num_nodes();
      result_.member_of.push_back(i);
    }
  }

  int node_of(OpId op) const {
    const auto found = node_.find(op);
    if (found == node_.end()) return -1;
    if (found->second >= 0) return found->second;
    return result_.members[at(-1 - found->second)].backward_node;
  }

  void find_data() {
    for (const auto* ops : {&level_.forward, &level_.backward}) {
      for (OpId op : *ops) {
        for (ValueId v : graph_.outputs[op]) add_value(op, v);
      }
    }
  }

  void add_value(OpId op, ValueId v) {
    const int maker = node_of(op);
    MemberShape& member = result_.members[at(result_.member_of[at(maker)])];
    if (graph_.kept[v]) {
      (result_.is_forward(maker) ? member.kept_forward : member.kept_backward) += graph_.bytes[v].count();
      return;
    }
    bool crosses = false, leaves = false;
    for (OpId reader : graph_.readers[v]) {
      const int node = node_of(reader);
      if (node < 0) {
        leaves = true;
      } else if (result_.member_of[at(node)] != result_.member_of[at(maker)]) {
        crosses = true;
      }
    }
    if (!crosses && !leaves) return;
    index_[v] = narrow<int>(result_.data.size());
    DataNode data{v, graph_.bytes[v].count(), maker, {}, false};
    if (leaves && result_.is_forward(maker)) data.readers.push_back(result_.turn);
    data.at_end = leaves && !result_.is_forward(maker);
    result_.data.push_back(std::move(data));
  }

  void add_shapes(std::size_t m) {
    const Member& member = level_.members[m];
    MemberShape& shape = result_.members[m];
    for (OpId op : member.forward) shape.may_rerun = shape.may_rerun && graph_.recomputable[op];
    const std::set<int> made_forward = outputs_of(member.forward),
                        made_backward = outputs_of(member.backward);
    shape.unsaved = measure(member.forward, {}, {}, made_forward);
    for (const Option& option : member.options) {
      if (stopped()) return;
      const std::set<ValueId> after = saved_by(member, read_first(graph_, {&option.backward}));
      OptionShape one;
      one.refreshed = option.refreshed();
      const std::set<ValueId> saved =
          one.refreshed ? saved_by(member, read_first(graph_, {&option.refresh, &option.backward})) : after;
      one.saved = bytes_of(saved);
      one.saved_after = bytes_of(after);
      one.forward = measure(option.forward, {}, saved, made_forward);
      if (shape.backward_node >= 0) {
        one.backward = measure(option.backward, after, {}, made_backward);
        for (Moment& moment : one.backward.moments) moment.own -= one.saved_after;
      }
      if (one.refreshed) {
        one.refresh_steps = option.refresh;
        one.refresh = measure(option.refresh, saved, after, made_forward);
        for (Moment& moment : one.refresh.moments) moment.own -= one.saved;
      } else if (one.saved > 0 && shape.may_rerun) {
        one.refresh_steps = steps_from(member, saved);
        if (one.refresh_steps.size() == member.forward.size()) one.refresh_steps.clear();
        one.refresh = measure(one.refresh_steps, {}, {}, made_forward);
      }
      shape.options.push_back(std::move(one));
    }
  }

  std::int64_t bytes_of(const std::set<ValueId>& values) const {
    std::int64_t bytes = 0;
    for (ValueId v : values) bytes += graph_.bytes[v].count();
    return bytes;
  }

  /// Forward steps that make what others read of the member, where `saved` is in memory.
  Steps steps_from(const Member& member, const std::set<ValueId>& saved) const {
    std::set<ValueId> wanted;
    Steps steps;
    for (auto op = member.forward.rbegin(); op != member.forward.rend(); ++op) {
      const bool needed = std::any_of(graph_.outputs[*op].begin(), graph_.outputs[*op].end(),
                                      [&](ValueId v) { return find(index_, v) >= 0 || wanted.contains(v); });
      if (!needed) continue;
      steps.push_back(*op);
      for (ValueId v : graph_.inputs[*op]) {
        if (!saved.contains(v) && !graph_.kept[v]) wanted.insert(v);
      }
    }
    std::reverse(steps.begin(), steps.end());
    return steps;
  }

  RunShape measure(const Steps& steps, const std::set<ValueId>& found, const std::set<ValueId>& left,
                   const std::set<int>& outputs) {
    RunShape run = RunMeter(graph_, steps, found, left, index_, outputs, corrections_, limits_).run();
    if (!corrections_) flatten_moments(run, result_.data, outputs);
    return run;
  }

  std::set<int> outputs_of(const Steps& ops) const {
    std::set<int> outputs;
    for (OpId op : ops) {
      for (ValueId v : graph_.outputs[op]) {
        if (const int d = find(index_, v); d >= 0) outputs.insert(d);
      }
    }
    return outputs;
  }

  /// Those that the member makes, no other reads, and are not kept anyway.
  std::set<ValueId> saved_by(const Member& member, const std::vector<ValueId>& values) const {
    std::set<ValueId> saved;
    for (ValueId v : values) {
      if (graph_.kept[v] || find(index_, v) >= 0 || !level_.training->is_forward(graph_.producer[v]))
        continue;
      if (node_of(graph_.producer[v]) >= 0 && node_of(graph_.producer[v]) == node_of(member.forward.front()))
        saved.insert(v);
    }
    return saved;
  }

  void find_readers() {
    const auto reads = [&](int node, const RunShape& run) {
      for (int d : run.reads) result_.data[at(d)].readers.push_back(node);
    };
    for (std::size_t m = 0; m < result_.members.size(); ++m) {
      const MemberShape& member = result_.members[m];
      reads(narrow<int>(m), member.unsaved);
      for (const OptionShape& option : member.options) {
        reads(narrow<int>(m), option.forward);
        if (option.refreshed) reads(narrow<int>(m), option.refresh);
        if (member.backward_node >= 0) reads(member.backward_node, option.backward);
      }
    }
    for (DataNode& data : result_.data) {
      sort_unique(data.readers);
      std::erase(data.readers, data.maker);
    }
  }

  const Level& level_;
  const Graph& graph_;
  const bool corrections_;
  std::map<OpId, int> node_;  ///< forward node, or -1 - member for backward ops
  DataIndex index_;
  Limits* limits_;
  LevelGraph result_;
};

}  // namespace

LevelGraph level_graph(const Level& level, bool corrections, Limits* limits) {
  return Builder(level, corrections, limits).run();
}

OptionCost cost_of(const TrainingGraph& training, const std::vector<OpId>& forward_ops,
                   const std::vector<OpId>& backward_ops, const Option& option) {
  const Graph& graph = *training.graph;
  std::set<OpId> ops(forward_ops.begin(), forward_ops.end());
  ops.insert(backward_ops.begin(), backward_ops.end());
  // Values of the group that only it reads; what else is read is noted.
  OptionCost cost;
  cost.refreshed = option.refreshed();
  const auto own = [&](const std::vector<ValueId>& values) {
    std::set<ValueId> found;
    for (ValueId v : values) {
      if (graph.kept[v]) continue;
      const bool leaves = std::any_of(graph.readers[v].begin(), graph.readers[v].end(),
                                      [&](OpId reader) { return !ops.contains(reader); });
      if (leaves || !ops.contains(graph.producer[v])) {
        cost.reads.push_back(v);
      } else {
        found.insert(v);
      }
    }
    return found;
  };
  const std::set<ValueId> saved = own(read_first(graph, {&option.refresh, &option.backward}));
  const std::set<ValueId> after = option.refreshed() ? own(read_first(graph, {&option.backward})) : saved;
  sort_unique(cost.reads);
  for (ValueId v : saved) cost.saved += graph.bytes[v].count();
  const DataIndex none;
  const auto peak = [&](const Steps& steps, const std::set<ValueId>& found, const std::set<ValueId>& left) {
    RunShape run = RunMeter(graph, steps, found, left, none, {}, false, nullptr).run();
    cost.duration = std::min(kLongest, cost.duration + run.duration);
    std::int64_t most = 0;
    for (const Moment& moment : run.moments) most = std::max(most, moment.own);
    return most;
  };
  cost.forward = peak(option.forward, {}, saved);
  if (option.refreshed()) cost.backward = peak(option.refresh, saved, after);
  cost.backward = std::max(cost.backward, peak(option.backward, after, {}));
  return cost;
}

}  // namespace remat::hiremate
