#include "planners/offload/moves.h"

#include <algorithm>

#include "base/numbers.h"

namespace remat::offload {

Moves::Moves(const Graph& graph, Random& random) : graph_(graph), random_(random), uses_(graph.num_values()) {
  for (ValueId v : graph.values()) {
    const OpId maker = graph.producer[v];
    const auto readers = graph.readers[v];
    if (!maker || graph.bytes[v] == Bytes()) continue;
    const bool has_gap = graph.kept[v] || (!readers.empty() && readers.back() > maker.next());
    if (has_gap) values_.push_back(v);
  }
}

void Moves::start_from(const Script& script, StepId peak_step) {
  script_ = script;
  extras_.clear();
  for (std::vector<int>& uses : uses_) uses.clear();
  IndexVector<OpId, bool> has_run(graph_.num_ops(), false);
  std::int64_t step = 0;
  for (int i : indices(script_)) {
    const Item& item = script_[at(i)];
    if (!item.op || has_run[item.op]) extras_.push_back(i);
    if (!item.op) {
      uses_[item.fetched].push_back(i);
      continue;
    }
    has_run[item.op] = true;
    if (step++ == peak_step.index()) peak_ = i;
    for (ValueId v : graph_.inputs[item.op]) uses_[v].push_back(i);
    for (ValueId v : graph_.outputs[item.op]) uses_[v].push_back(i);
  }
  for (ValueId v : graph_.graph_outputs) uses_[v].push_back(narrow<int>(std::ssize(script_)));
}

Script Moves::changed(bool too_much) {
  edits_.clear();
  const bool is_double = random_.chance(0.4);
  if (too_much || extras_.empty() || random_.chance(0.4)) {
    add_one(too_much || random_.chance(0.3));
    if (is_double && !extras_.empty()) change_extra();
  } else {
    change_extra();
    if (is_double) add_one(random_.chance(0.5));
  }
  return applied();
}

void Moves::change_extra() {
  const int i = extras_[at(random_.below(std::ssize(extras_)))];
  const Item& old = script_[at(i)];
  edits_.push_back({i, true, {}});
  if (random_.chance(0.5)) return;
  if (!old.op) {
    const OpId maker = graph_.producer[old.fetched];
    if (graph_.recomputable[maker]) edits_.push_back({i, false, {maker, ValueId::none()}});
    return;
  }
  for (ValueId v : graph_.outputs[old.op]) {
    if (graph_.bytes[v] > Bytes()) edits_.push_back({i, false, {OpId::none(), v}});
  }
}

void Moves::add_one(bool at_peak) {
  constexpr int kTries = 16;
  for (int k = 0; k < kTries; ++k) {
    const ValueId v = values_[at(random_.below(std::ssize(values_)))];
    const std::vector<int>& uses = uses_[v];
    if (uses.size() < 2) continue;
    std::ptrdiff_t next = 1 + static_cast<std::ptrdiff_t>(random_.below(std::ssize(uses) - 1));
    if (at_peak) {
      next = std::ranges::upper_bound(uses, peak_) - uses.begin();
      if (next == 0 || next == std::ssize(uses) || uses[at(next) - 1] == peak_) continue;
    }
    const int before = uses[at(next)];
    if (before - uses[at(next) - 1] < 2) continue;
    const OpId maker = graph_.producer[v];
    if (graph_.recomputable[maker] && random_.chance(0.5)) {
      edits_.push_back({before, false, {maker, ValueId::none()}});
    } else {
      edits_.push_back({before, false, {OpId::none(), v}});
    }
    return;
  }
}

Script Moves::applied() {
  std::ranges::stable_sort(edits_, {}, &Edit::index);
  Script next;
  next.reserve(script_.size() + edits_.size());
  std::size_t edit = 0;
  for (int i = 0; i <= std::ssize(script_); ++i) {
    bool erases = false;
    for (; edit < edits_.size() && edits_[edit].index == i; ++edit) {
      erases |= edits_[edit].erases;
      if (!edits_[edit].erases) next.push_back(edits_[edit].item);
    }
    if (!erases && i < std::ssize(script_)) next.push_back(script_[at(i)]);
  }
  return next;
}

}  // namespace remat::offload
