#include "pipeline/blocks.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>

#include "base/numbers.h"
#include "graph/modules.h"
#include "graph/pairing.h"
#include "remat/error.h"

namespace remat::pipeline {
namespace {

class Cutter {
 public:
  Cutter(const Graph& graph, const CutOptions& options) : graph_(graph), options_(options) {
    split();
    find_gradients();
    find_data();
    last_.backward = narrow<int>(backward_.size());
  }

  std::vector<Block> run() {
    for (const Cut& cut : cuts()) {
      if (cut.backward <= last_.backward) add(cut);
    }
    add({narrow<int>(forward_.size()), 0, {}, {}});
    for (Block& block : blocks_) describe(block);
    return std::move(blocks_);
  }

 private:
  /// Before forward op `forward`; the backward ops before `backward` belong to what follows it.
  struct Cut {
    int forward = 0, backward = 0;
    ValueId value, gradient;
  };

  void split() {
    const auto pairing = find_pairing(graph_);
    if (!pairing) {
      throw InputError("graph '" + graph_.name + "' has no backward half that a pipeline could be made of");
    }
    where_.assign(graph_.num_ops(), -1);
    for (OpId op : graph_.ops()) {
      if (graph_.phase[op] == Phase::kUpdate) {
        updates_.push_back(op);
        continue;
      }
      auto& half = op < pairing->first_backward ? forward_ : backward_;
      where_[op] = narrow<int>(half.size());
      half.push_back(op);
    }
    first_backward_ = pairing->first_backward;
  }

  bool is_update(OpId op) const { return graph_.phase[op] == Phase::kUpdate; }
  bool is_forward(OpId op) const { return op < first_backward_ && !is_update(op); }
  bool is_forward_value(ValueId v) const {
    return !graph_.is_graph_input(v) && is_forward(graph_.producer[v]);
  }
  bool is_backward_value(ValueId v) const {
    return !graph_.is_graph_input(v) && !is_forward(graph_.producer[v]) && !is_update(graph_.producer[v]);
  }

  /// Gradients of parameters: values that are kept or read by updates alone, and the summands of such values.
  void find_gradients() {
    final_.assign(graph_.num_values(), false);
    dropped_.assign(graph_.num_ops(), false);
    for (auto op = backward_.rbegin(); op != backward_.rend(); ++op) {
      bool all = !graph_.outputs[*op].empty();
      for (ValueId v : graph_.outputs[*op]) {
        const auto readers = graph_.readers[v];
        const bool taken = std::ranges::all_of(readers, [&](OpId r) { return is_update(r) || dropped_[r]; });
        final_[v] = final_[v] || ((graph_.kept[v] || !readers.empty()) && taken);
        all = all && final_[v];
      }
      if (all && adds_up(*op)) dropped_[*op] = true;
    }
    std::erase_if(backward_, [&](OpId op) { return dropped_[op]; });
    for (int i : indices(backward_)) where_[backward_[at(i)]] = i;
  }

  bool adds_up(OpId op) const {
    if (graph_.outputs[op].size() != 1 || graph_.inputs[op].size() < 2) return false;
    const Bytes bytes = graph_.bytes[graph_.outputs[op].front()];
    return std::ranges::all_of(graph_.inputs[op], [&](ValueId v) {
      return is_backward_value(v) && graph_.bytes[v] == bytes && graph_.readers[v].size() == 1;
    });
  }

  void find_data() {
    data_.assign(graph_.num_values(), false);
    for (const std::string& name : options_.data) {
      const auto same = [&](ValueId v) { return graph_.value_name[v] == name; };
      const auto found = std::ranges::find_if(graph_.graph_inputs, same);
      if (found == graph_.graph_inputs.end()) {
        throw UsageError("graph '" + graph_.name + "' has no input named '" + name + "'");
      }
      data_[*found] = true;
    }
    if (!options_.data.empty() || updates_.empty()) return;
    for (ValueId v : graph_.graph_inputs)
      data_[v] = std::ranges::none_of(graph_.readers[v], [&](OpId r) { return is_update(r); });
  }

  std::vector<Cut> cuts() const {
    // Finds the last forward reader of each value. A value crosses t if made before t and read from t on.
    std::vector<int> crossing(forward_.size() + 1, 0);
    std::vector<std::vector<ValueId>> begins(forward_.size() + 1);
    std::map<int, std::set<ValueId>> ends;
    for (OpId op : forward_) {
      for (ValueId v : graph_.outputs[op]) {
        int last = -1;
        for (OpId r : graph_.readers[v]) {
          if (is_forward(r)) last = std::max(last, where_[r]);
        }
        if (last > where_[op]) {
          begins[at(where_[op] + 1)].push_back(v);
          ends[last + 1].insert(v);
        }
      }
    }
    std::vector<Cut> found;
    std::set<ValueId> now;
    const bool layers = options_.whole_layers && has_layers();
    for (int t = 0; t < narrow<int>(forward_.size()); ++t) {
      now.insert(begins[at(t)].begin(), begins[at(t)].end());
      if (const auto gone = ends.find(t); gone != ends.end()) {
        for (ValueId v : gone->second) now.erase(v);
      }
      if (t == 0 || now.size() != 1 || (layers && !between_layers(t))) continue;
      if (auto cut = with_backward(t, *now.begin())) found.push_back(*cut);
    }
    return found;
  }

  bool has_layers() const {
    return std::ranges::any_of(forward_, [&](OpId op) { return !layer_of(graph_.op_module[op]).empty(); });
  }
  bool between_layers(int t) const {
    const std::string before = layer_of(graph_.op_module[forward_[at(t - 1)]]);
    const std::string after = layer_of(graph_.op_module[forward_[at(t)]]);
    return before != after;
  }

  /// The first place in the backward half where one gradient passes.
  std::optional<Cut> with_backward(int t, ValueId value) const {
    int low = 0, high = narrow<int>(backward_.size());
    for (int i : indices(backward_)) {
      for (ValueId v : graph_.inputs[backward_[at(i)]]) {
        if (!is_forward_value(v) || v == value) continue;
        if (where_[graph_.producer[v]] >= t) {
          low = std::max(low, i + 1);
        } else {
          high = std::min(high, i);
        }
      }
    }
    for (int r = low; r <= high; ++r) {
      const auto passing = gradients_at(r);
      if (passing.size() == 1) return Cut{t, r, value, *passing.begin()};
    }
    return std::nullopt;
  }

  std::set<ValueId> gradients_at(int r) const {
    std::set<ValueId> passing;
    for (int i = r; i < narrow<int>(backward_.size()); ++i) {
      for (ValueId v : graph_.inputs[backward_[at(i)]]) {
        if (is_backward_value(v) && !final_[v] && where_[graph_.producer[v]] < r) passing.insert(v);
      }
      if (passing.size() > 1) break;
    }
    return passing;
  }

  /// The block between the last cut and this one.
  void add(const Cut& cut) {
    Block block;
    block.graph = &graph_;
    block.forward.assign(forward_.begin() + last_.forward, forward_.begin() + cut.forward);
    block.backward.assign(backward_.begin() + cut.backward, backward_.begin() + last_.backward);
    block.received = last_.value;
    block.sent = cut.value;
    block.gradient_sent = last_.gradient;
    block.gradient_received = cut.gradient;
    blocks_.push_back(std::move(block));
    last_ = cut;
  }

  void describe(Block& block) const {
    std::set<ValueId> held;
    std::set<ValueId> data;
    std::map<std::string, int> names;
    for (const auto* half : {&block.forward, &block.backward}) {
      for (OpId op : *half) {
        for (ValueId v : graph_.inputs[op]) {
          if (graph_.is_graph_input(v)) (data_[v] ? data : held).insert(v);
        }
        for (ValueId v : graph_.outputs[op]) {
          if (half == &block.backward && final_[v]) take_gradient(block, v, held);
        }
      }
    }
    for (OpId op : block.forward) {
      const std::string layer = layer_of(graph_.op_module[op]);
      ++names[layer.empty() ? std::string(graph_.op_module[op].substr(0, graph_.op_module[op].find('.')))
                            : layer];
    }
    const auto most = std::ranges::max_element(names, {}, [](const auto& entry) { return entry.second; });
    if (most != names.end()) block.name = most->first;
    block.is_module = !has_layers() || (names.size() == 1 && !layer_of(block.name).empty());
    block.held.assign(held.begin(), held.end());
    block.data.assign(data.begin(), data.end());
  }

  /// Adds a gradient to the block, with the state read by its updates.
  void take_gradient(Block& block, ValueId gradient, std::set<ValueId>& held) const {
    block.gradients += graph_.bytes[gradient];
    for (OpId reader : graph_.readers[gradient]) {
      if (dropped_[reader]) {
        Block rest;
        for (ValueId sum : graph_.outputs[reader]) take_gradient(rest, sum, held);
      } else if (is_update(reader)) {
        for (ValueId v : graph_.inputs[reader]) {
          if (graph_.is_graph_input(v)) held.insert(v);
        }
      }
    }
  }

  const Graph& graph_;
  const CutOptions& options_;
  std::vector<OpId> forward_, backward_, updates_;
  OpId first_backward_;
  IndexVector<OpId, int> where_;  ///< in its half
  IndexVector<OpId, bool> dropped_;
  IndexVector<ValueId, bool> final_;  ///< gradient of a parameter
  IndexVector<ValueId, bool> data_;
  std::vector<Block> blocks_;
  Cut last_;
};

}  // namespace

std::vector<Block> cut_into_blocks(const Graph& graph, const CutOptions& options) {
  return Cutter(graph, options).run();
}

}  // namespace remat::pipeline
