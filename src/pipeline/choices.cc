#include "pipeline/choices.h"

#include <algorithm>
#include <functional>
#include <set>
#include <tuple>

#include "base/numbers.h"
#include "exact/retention_cut.h"
#include "model/step.h"
#include "remat/largest.h"

namespace remat::pipeline {
namespace {

constexpr std::int64_t kMostTicks = 400'000'000;
constexpr std::size_t kMostSets = 20'000;  // of an intermediate frontier

/// One block with one micro-batch.
class Alone {
 public:
  Alone(const Block& block, int state)
      : block_(block), state_(state), base_(keep_all(block)), part_(build(base_)) {}

  const Graph& graph() const { return part_.graph; }
  OpId turn() const { return part_.turn; }
  const BlockChoice& base() const { return base_; }

  /// A choice from a plan: the positions of its steps, and the ops whose results are alive at the turn.
  BlockChoice choice_of(const Plan& plan) const {
    BlockChoice choice;
    bool turned = false;
    for (OpId step : plan.steps) {
      turned = turned || step == part_.turn;
      const int position = part_.origin[at(step)];
      if (position >= 0) (turned ? choice.second : choice.first).push_back(position);
    }
    std::set<int> saved;
    StepId turn(0);
    while (plan.steps[turn] != part_.turn) ++turn;
    for (const InstanceLife& life : instance_lives(graph(), plan)) {
      const int position = part_.origin[at(graph().producer[life.value])];
      if (position >= 0 && life.first < turn && turn < life.end) saved.insert(position);
    }
    choice.saved_ops.assign(saved.begin(), saved.end());
    return measured(std::move(choice));
  }

  /// Fills in bytes and time, by the reference simulator.
  BlockChoice measured(BlockChoice choice) const {
    const Part part = build(choice);
    IndexVector<StepId, Bytes> memory;
    const Simulation cost = simulate(part.graph, part.plan, memory);
    StepId turn(0);
    while (part.plan.steps[turn] != part.turn) ++turn;
    choice.saved = memory[turn] - part.graph.resident - part.incoming;
    choice.need = cost.peak - part.graph.resident;
    choice.extra = cost.duration - part.graph.base_duration;
    return choice;
  }

 private:
  Part build(const BlockChoice& choice) const {
    const Placed placed{&block_, &choice};
    return build_part(std::span(&placed, 1), turns_in_flight(1), state_, false);
  }

  const Block& block_;
  int state_;
  BlockChoice base_;
  Part part_;
};

/// Walks down the hull: each time the fastest choice that saves less than the last one.
void add_saved(const Alone& alone, std::vector<BlockChoice>& choices, Limits& limits) {
  const Graph& graph = alone.graph();
  const Bytes beside = need_of(graph, alone.turn());
  Bytes room = kNoBudget;
  while (!limits.reached()) {
    const auto found = solve_retention(graph, alone.turn(), room, OrderMode::kFixed, kMostTicks, &limits);
    limits.spend(1 + found.ticks / 50);
    if (!found.choice) return;
    choices.push_back(alone.choice_of(plan_of(graph, *found.choice)));
    room = beside + found.choice->held - Bytes(1);
  }
}

/// Sets of ops, Pareto-optimal in the bytes of their results and time.
class Knapsack {
 public:
  struct Set {
    std::int64_t bytes = 0, gain = 0;
    int item = -1, before = -1;
  };

  void add(int item, std::int64_t bytes, std::int64_t gain) {
    std::vector<int> grown = frontier_;
    for (int set : frontier_) {
      all_.push_back({all_[at(set)].bytes + bytes, all_[at(set)].gain + gain, item, set});
      grown.push_back(narrow<int>(all_.size()) - 1);
    }
    std::ranges::sort(grown, {}, [&](int s) { return std::pair(all_[at(s)].bytes, -all_[at(s)].gain); });
    frontier_.clear();
    for (int set : grown) {
      if (frontier_.empty() || all_[at(set)].gain > all_[at(frontier_.back())].gain) frontier_.push_back(set);
    }
    thin(kMostSets / 10);
  }

  void thin(std::size_t most) {
    if (frontier_.size() <= most) return;
    std::vector<int> kept;
    for (std::size_t i = 0; i < most; ++i) kept.push_back(frontier_[i * (frontier_.size() - 1) / (most - 1)]);
    frontier_ = std::move(kept);
  }

  std::vector<std::vector<int>> sets() const {
    std::vector<std::vector<int>> sets;
    for (int set : frontier_) {
      sets.emplace_back();
      for (int s = set; all_[at(s)].item >= 0; s = all_[at(s)].before)
        sets.back().push_back(all_[at(s)].item);
      std::ranges::sort(sets.back());
    }
    return sets;
  }

 private:
  std::vector<Set> all_{Set()};
  std::vector<int> frontier_{0};
};

/// The last forward op that is not saved and whose results the backward half reads; -1 where there is none.
template <class IsSaved>
int last_lacked(const Block& block, IsSaved is_saved) {
  const Graph& graph = *block.graph;
  const std::set<OpId> backward(block.backward.begin(), block.backward.end());
  const auto lacks = [&](int k) {
    return !is_saved(k) && std::ranges::any_of(graph.outputs[block.forward[at(k)]], [&](ValueId v) {
      return std::ranges::any_of(graph.readers[v], [&](OpId r) { return backward.contains(r); });
    });
  };
  int last = narrow<int>(block.forward.size()) - 1;
  while (last >= 0 && !lacks(last)) --last;
  return last;
}

/// Recomputes from the first op to the last one whose missing results the backward half reads.
BlockChoice checkpointed(const Block& block, const Alone& alone, const std::vector<int>& saved) {
  BlockChoice choice = alone.base();
  choice.as_a_whole = true;
  choice.saved_ops = saved;
  const auto is_saved = [&](int k) { return std::ranges::binary_search(saved, k); };
  const int last = last_lacked(block, is_saved);
  std::vector<int> again;
  for (int k = 0; k <= last; ++k) {
    if (!is_saved(k)) again.push_back(k);
  }
  choice.second.insert(choice.second.begin(), again.begin(), again.end());
  return alone.measured(std::move(choice));
}

void add_checkpointed(const Block& block, const Alone& alone, std::vector<BlockChoice>& choices) {
  choices.push_back(alone.measured(alone.base()));
  if (!block.is_module) return;
  const Graph& graph = *block.graph;
  std::vector<int> always;
  Knapsack knapsack;
  // Ops after the last one that the backward half reads from are never recomputed.
  const int end = last_lacked(block, [](int) { return false; }) + 1;
  for (int k = 0; k < end; ++k) {
    const OpId op = block.forward[at(k)];
    if (!graph.recomputable[op]) {
      always.push_back(k);
      continue;
    }
    std::int64_t bytes = 0;
    for (ValueId v : graph.outputs[op]) bytes += graph.bytes[v].count();
    knapsack.add(k, bytes, graph.duration[op].count());
  }
  knapsack.thin(4 * kMostChoices);
  for (std::vector<int>& saved : knapsack.sets()) {
    saved.insert(saved.end(), always.begin(), always.end());
    std::ranges::sort(saved);
    choices.push_back(checkpointed(block, alone, saved));
  }
}

/// The choices that are Pareto-optimal in bytes saved, peak and time, by falling bytes saved.
std::vector<BlockChoice> undominated(std::vector<BlockChoice> choices) {
  std::ranges::stable_sort(choices, {},
                           [](const BlockChoice& c) { return std::tuple(c.saved, c.need, c.extra); });
  std::vector<BlockChoice> kept;
  for (BlockChoice& choice : choices) {
    const bool beaten = std::ranges::any_of(kept, [&](const BlockChoice& other) {
      return other.need <= choice.need && other.extra <= choice.extra;
    });
    if (!beaten) kept.push_back(std::move(choice));
  }
  std::ranges::reverse(kept);
  if (kept.size() <= at(kMostChoices)) return kept;
  std::vector<BlockChoice> few;
  for (int i = 0; i < kMostChoices; ++i) {
    few.push_back(std::move(kept[at(i) * (kept.size() - 1) / at(kMostChoices - 1)]));
  }
  return few;
}

}  // namespace

BlockCurve make_curve(const Block& block, PipelineExecutor executor, int state, Limits& limits) {
  BlockCurve curve;
  for (OpId op : block.forward) curve.forward += block.graph->duration[op];
  for (OpId op : block.backward) curve.backward += block.graph->duration[op];
  const Alone alone(block, state);
  std::vector<BlockChoice> choices;
  if (executor == PipelineExecutor::kSaved) {
    add_saved(alone, choices, limits);
    if (choices.empty()) choices.push_back(alone.measured(alone.base()));
  } else {
    add_checkpointed(block, alone, choices);
  }
  curve.choices = undominated(std::move(choices));
  return curve;
}

Kinds kinds_of(const std::vector<Block>& blocks, int state) {
  Kinds kinds;
  std::vector<Graph> seen, structures;
  const auto number = [](std::vector<Graph>& known, const Graph& graph, auto&& same) {
    const auto found = std::ranges::find_if(known, [&](const Graph& other) { return same(graph, other); });
    const int at = narrow<int>(found - known.begin());
    if (found == known.end()) known.push_back(graph);
    return at;
  };
  for (const Block& block : blocks) {
    const BlockChoice all = keep_all(block);
    const Placed placed{&block, &all};
    const Graph graph = build_part(std::span(&placed, 1), turns_in_flight(1), state, false).graph;
    kinds.kind.push_back(number(seen, graph, std::equal_to<Graph>()));
    kinds.structure.push_back(number(structures, graph, same_structure));
  }
  return kinds;
}

}  // namespace remat::pipeline
