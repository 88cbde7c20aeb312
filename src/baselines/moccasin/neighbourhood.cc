#include "baselines/moccasin/neighbourhood.h"

#include <algorithm>

#include "base/numbers.h"

namespace remat::moccasin {

Neighbourhoods::Neighbourhoods(const Graph& graph, const Shape& shape, const Plan& plan)
    : graph_(graph),
      shape_(shape),
      stages_(run_stages(graph, plan)),
      levels_(graph.num_ops() + 1, graph.resident) {
  IndexVector<StepId, Bytes> memory;
  simulate(graph, plan, memory);
  IndexVector<OpId, bool> has_run(graph.num_ops(), false);
  std::size_t stage = 0;
  for (StepId step : plan.steps.ids()) {
    levels_[stage] = std::max(levels_[stage], memory[step]);
    stage += !has_run[plan.steps[step]];
    has_run[plan.steps[step]] = true;
  }
  find_gaps();
}

void Neighbourhoods::find_gaps() {
  const auto end = graph_.ops().size();
  for (OpId op : graph_.ops()) {
    if (!shape_.rerun_useful[op]) continue;
    std::vector<std::int64_t> uses;
    for (ValueId v : graph_.outputs[op]) {
      for (OpId reader : graph_.readers[v]) {
        uses.insert(uses.end(), stages_[reader].begin(), stages_[reader].end());
      }
      if (graph_.kept[v]) uses.push_back(end + 1);
    }
    std::sort(uses.begin(), uses.end());
    std::int64_t previous = op.index();
    for (std::int64_t use : uses) {
      if (use > previous + 1) {
        // A rerun in the stage of a use may come before or after it; the gap counts in both cases.
        const auto rerun = std::upper_bound(stages_[op].begin(), stages_[op].end(), previous);
        const bool dropped = rerun != stages_[op].end() && *rerun <= use;
        gaps_.push_back({op, previous, use, dropped});
        if (dropped) dropped_.push_back(gaps_.back());
      }
      previous = use;
    }
  }
}

/// Fills up `chosen`: first ops that are dropped over the stage, then held ones with what they are made from.
std::vector<OpId> Neighbourhoods::pick(std::int64_t stage, std::vector<OpId> chosen, std::size_t size,
                                       Random& random) const {
  std::vector<OpId> dropped, held;
  for (const Gap& gap : gaps_) {
    if (gap.contains(stage)) (gap.dropped ? dropped : held).push_back(gap.op);
  }
  random.shuffle(std::span(dropped));
  random.shuffle(std::span(held));
  IndexVector<OpId, bool> taken(graph_.num_ops(), false);
  for (OpId op : chosen) taken[op] = true;
  const auto take = [&](OpId op, std::size_t most) {
    if (chosen.size() >= most || taken[op] || !shape_.rerun_useful[op]) return;
    taken[op] = true;
    chosen.push_back(op);
  };
  for (OpId op : dropped) take(op, size / 2);
  for (OpId op : held) {
    take(op, size);
    for (OpId before : predecessors(graph_, op)) {
      if (random.chance(0.5)) take(before, size);
    }
  }
  for (OpId op : dropped) take(op, size);
  return chosen;
}

std::vector<OpId> Neighbourhoods::around(std::int64_t stage, std::size_t size, Random& random) const {
  return pick(stage, {}, size, random);
}

std::vector<OpId> Neighbourhoods::around_some_rerun(std::size_t size, Random& random) const {
  const Gap& gap = dropped_[at(random.below(std::ssize(dropped_)))];
  // The stage with the highest memory among a few of the gap, where other ops have to free it.
  std::int64_t stage = gap.first + 1;
  for (int tries = 0; tries < 3; ++tries) {
    const std::int64_t other = random.between(gap.first + 1, gap.end - 1);
    if (levels_[at(other)] > levels_[at(stage)]) stage = other;
  }
  std::vector<OpId> chosen{gap.op};
  for (OpId before : predecessors(graph_, gap.op)) {
    if (shape_.rerun_useful[before]) chosen.push_back(before);
  }
  return pick(stage, std::move(chosen), size, random);
}

Shape Neighbourhoods::freed(const std::vector<OpId>& ops) const {
  Shape shape = shape_;
  for (OpId op : graph_.ops()) {
    shape.pinned[op] = stages_[op];
    shape.runs[op] = narrow<int>(stages_[op].size());
  }
  for (OpId op : ops) {
    shape.pinned[op].clear();
    shape.runs[op] = shape_.runs[op];
  }
  return shape;
}

}  // namespace remat::moccasin
