// GreedyRemat (Kumar et al. 2019, section 4; the rule of XLA): one scan over the graph's order that evicts
// the value which lowers memory most whenever a step is over the budget.
#include <algorithm>
#include <tuple>

#include "base/numbers.h"
#include "model/step.h"
#include "polish/polish.h"
#include "remat/planner.h"

namespace remat::greedy {
namespace {

/// The scan stops dropping when the plan has this many steps per op.
constexpr std::size_t kMaxStepsPerOp = 32;

/// The plan as a linked list that grows ahead of the scan: a dropped op is inserted again just before the
/// next step that reads it. State: the list, and the values in memory at the scan. `place` orders the steps:
/// a new step gets the midpoint of its neighbours, and the list is renumbered when there is none.
class Scan {
 public:
  Scan(const Graph& graph, Bytes budget, Limits& limits)
      : graph_(graph),
        budget_(budget),
        limits_(limits),
        reads_(graph.num_values()),
        present_(graph.num_values(), false),
        fresh_(graph.num_ops(), false),
        listed_(graph.num_ops(), false) {
    for (OpId op : graph.ops()) {
      list_.push_back({op, op.index() * kGap, op.index() - 1, op.index() + 1, false});
      for (ValueId v : graph.inputs[op]) reads_[v].push_back(op.index());
    }
    list_.back().next = -1;
    memory_ = graph.resident;
  }

  Plan run() {
    for (std::int32_t at = 0; at >= 0; at = step(at).next) {
      begin(at);
      while (memory_ + momentary(graph_, step(at).op) - reused(at) > budget_ && drop_best(at)) {
      }
      end(at);
    }
    Plan plan;
    for (std::int32_t at = 0; at >= 0; at = step(at).next) plan.steps.push_back(step(at).op);
    return plan;
  }
  std::int64_t drops() const { return drops_; }

 private:
  static constexpr std::int64_t kGap = std::int64_t{1} << 20;
  struct Step {
    OpId op;
    std::int64_t place;
    std::int32_t previous, next;
    bool again;  ///< a recomputation
  };
  Step& step(std::int32_t i) { return list_[at(i)]; }
  const Step& step(std::int32_t i) const { return list_[at(i)]; }

  void begin(std::int32_t at) {
    const OpId op = step(at).op;
    for (ValueId v : graph_.outputs[op]) {
      if (!present_[v]) memory_ += graph_.bytes[v];
      present_[v] = true;
    }
    fresh_[op] = step(at).again;
    if (!listed_[op]) resident_ops_.push_back(op);
    listed_[op] = true;
  }

  void end(std::int32_t at) {
    const OpId op = step(at).op;
    for (ValueId v : graph_.inputs[op]) {
      if (graph_.is_graph_input(v)) continue;
      std::erase(reads_[v], at);
      fresh_[graph_.producer[v]] = false;
      drop_if_unread(v);
    }
    for (ValueId v : graph_.outputs[op]) drop_if_unread(v);
  }
  /// The overlap of the step with inputs that no later step of the current list reads.
  Bytes reused(std::int32_t at) const {
    Bytes sum;
    for (const auto& [input, bytes] : reuses(graph_, step(at).op)) {
      const auto& reads = reads_[input];
      const bool is_last = std::all_of(reads.begin(), reads.end(), [&](std::int32_t r) { return r == at; });
      if (is_last && !graph_.kept[input]) sum += bytes;
    }
    return sum;
  }
  void drop_if_unread(ValueId v) {
    if (present_[v] && reads_[v].empty() && !graph_.kept[v]) drop(v);
  }
  void drop(ValueId v) {
    present_[v] = false;
    memory_ -= graph_.bytes[v];
  }

  /// In memory, not read or made by step `at`, and read later.
  bool is_idle(ValueId v, std::int32_t at) const {
    return present_[v] && !reads_[v].empty() &&
           std::find(reads_[v].begin(), reads_[v].end(), at) == reads_[v].end();
  }
  /// Bytes that dropping the op's outputs frees at the step, or nothing if they cannot be dropped: all its
  /// inputs must be in memory now, and a recomputation must be read first (or two recomputations for one step
  /// could drop each other forever).
  Bytes freed_by(OpId op, std::int32_t at) const {
    if (!graph_.recomputable[op] || fresh_[op] || op == step(at).op) return Bytes();
    for (ValueId v : graph_.inputs[op]) {
      if (!graph_.is_graph_input(v) && !present_[v]) return Bytes();
    }
    Bytes sum;
    for (ValueId v : graph_.outputs[op]) {
      if (is_idle(v, at)) sum += graph_.bytes[v];
    }
    return sum;
  }

  bool drop_best(std::int32_t at) {
    if (limits_.spend(1 + std::ssize(resident_ops_) / 8)) return false;
    if (list_.size() > kMaxStepsPerOp * graph_.num_ops()) return false;
    OpId best;
    Bytes most;
    std::size_t kept = 0;
    for (OpId op : resident_ops_) {
      const auto outputs = graph_.outputs[op];
      listed_[op] = std::any_of(outputs.begin(), outputs.end(), [&](ValueId v) { return bool{present_[v]}; });
      if (!listed_[op]) continue;
      resident_ops_[kept++] = op;
      const Bytes freed = freed_by(op, at);
      if (freed == Bytes()) continue;
      // Most bytes, then least duration, then the smaller op.
      const auto key = [&](Bytes bytes, OpId one) {
        return std::tuple(-bytes.count(), graph_.duration[one], one);
      };
      if (!best || key(freed, op) < key(most, best)) {
        best = op;
        most = freed;
      }
    }
    resident_ops_.resize(kept);
    if (!best) return false;
    rematerialize(best, at);
    return true;
  }

  void rematerialize(OpId op, std::int32_t at) {
    std::int32_t reader = -1;
    for (ValueId v : graph_.outputs[op]) {
      if (!is_idle(v, at)) continue;
      for (std::int32_t r : reads_[v]) {
        if (reader < 0 || step(r).place < step(reader).place) reader = r;
      }
      drop(v);
    }
    const auto again = narrow<std::int32_t>(list_.size());
    const std::int32_t previous = step(reader).previous;
    list_.push_back({op, 0, previous, reader, true});
    step(previous).next = again;
    step(reader).previous = again;
    const std::int64_t lo = step(previous).place, hi = step(reader).place;
    step(again).place = lo + (hi - lo) / 2;
    if (hi - lo < 2) renumber();
    for (ValueId v : graph_.inputs[op]) reads_[v].push_back(again);
    ++drops_;
  }
  void renumber() {
    std::int64_t place = 0;
    for (std::int32_t at = 0; at >= 0; at = step(at).next) step(at).place = kGap * place++;
  }

  const Graph& graph_;
  Bytes budget_;
  Limits& limits_;
  std::vector<Step> list_;  ///< first the ops in their order, then what is inserted
  IndexVector<ValueId, std::vector<std::int32_t>> reads_;  ///< steps at or after the scan
  IndexVector<ValueId, bool> present_;
  IndexVector<OpId, bool> fresh_;   ///< recomputed and not read since then
  std::vector<OpId> resident_ops_;  ///< ops with an output in memory, and some without
  IndexVector<OpId, bool> listed_;
  Bytes memory_;
  std::int64_t drops_ = 0;
};

PlanResult run(const Problem& problem, const PlanOptions&, Limits& limits) {
  const Graph& graph = *problem.graph;
  // For the least peak the scan drops all that it can. It does not count rerun states, and leaves room for
  // all of them.
  const Bytes budget =
      problem.objective == Objective::kPeak ? Bytes() : problem.budget - room_for_rerun_states(graph);
  Scan scan(graph, budget, limits);
  PlanResult result;
  result.plan = polish::without_unread_steps(graph, scan.run());
  result.counters = {{"drops", scan.drops()}};
  if (const auto reason = limits.stopped_by()) result.stopped_by = *reason;
  return result;
}

}  // namespace

PlannerInfo info() {
  return {.name = "greedy",
          .description = "one scan that drops what lowers memory most where a step is over the budget",
          .guarantee = "none; may miss its budget",
          .source = "Kumar et al. 2019 (GreedyRemat), after XLA",
          .run = run};
}

}  // namespace remat::greedy
