#include "polish/polish.h"

#include <algorithm>
#include <tuple>

#include "base/numbers.h"
#include "model/step.h"
#include "plan/script.h"
#include "polish/range_max.h"
#include "remat/check.h"

namespace remat::polish {

namespace {

/// True if the polished plan is valid, no slower, and needs no more than the budget or than before.
bool is_no_worse(const Graph& graph, const Plan& before, const Plan& after, Bytes budget) {
  const Simulation old = simulate(graph, before), now = simulate(graph, after);
  const auto violation = validate(graph, after, OrderMode::kFree);
  const bool runs = !violation || violation->rule == Rule::kDuration;
  return runs && now.duration <= old.duration && now.peak <= std::max(budget, old.peak);
}

}  // namespace

Plan without_unread_steps(const Graph& graph, const Plan& plan) {
  Plan result = steps_of(without_unread(graph, script_of(plan)));
  REMAT_ASSERT_HEAVY(is_no_worse(graph, plan, result, Bytes()), plan.steps.size(), result.steps.size());
  return result;
}

namespace {

using Step = std::int32_t;

/// A plan from which steps are erased without renumbering the others. State: the steps that remain. Derived:
/// the steps of each op and the reads of each value as linked lists, and the memory by step.
class Eraser {
 public:
  Eraser(const Graph& graph, const Plan& plan, Bytes budget)
      : graph_(graph),
        steps_(plan.steps),
        length_(narrow<Step>(plan.steps.size())),
        there_(plan.steps.size(), true),
        memory_(simulated(graph, plan)),
        runs_(graph.num_ops()),
        reads_(graph.num_values()) {
    limit_ = std::max(budget.count(), memory_.max(0, plan.steps.size()));
    for (StepId step : steps_.ids()) {
      runs_[steps_[step]].push_back(step.index());
      for (ValueId v : graph.inputs[steps_[step]]) reads_[v].push_back(step.index());
    }
  }

  bool is_recomputation(Step s) const { return there_[at(s)] && runs_[op(s)].front() != s; }

  /// Duration saved by erasing the step: its own, plus that of recomputations which only it reads, searched
  /// up to `depth`.
  double saved(Step s, int depth = 6) const {
    auto sum = real(graph_.duration[op(s)]);
    if (depth == 0) return sum;
    for (ValueId v : graph_.inputs[op(s)]) {
      if (graph_.is_graph_input(v)) continue;
      const Step made = instance(v, s);
      if (is_recomputation(made) && last_read(v, made) == s && only_reader(made, s))
        sum += saved(made, depth - 1);
    }
    return sum;
  }

  /// Bytes times steps added by erasing the step.
  double held(Step s) const {
    const Step before = previous_run(s);
    double sum = 0;
    for (ValueId v : graph_.outputs[op(s)]) {
      if (last_read(v, s) < 0) continue;
      const Step from = std::max(before, last_read(v, before));
      sum += real(graph_.bytes[v]) * real(s - from);
    }
    return sum;
  }

  /// Erases the step if memory stays within the limit; `freed` receives recomputations that may have lost
  /// their last reader.
  bool try_erase(Step s, std::vector<Step>& freed) {
    const Step before = previous_run(s);
    if (is_hopeless(s, before)) return false;
    undo_.clear();
    Step from = s;
    for (ValueId v : graph_.outputs[op(s)]) {
      const std::int64_t bytes = graph_.bytes[v].count();
      const Step end = last_read(v, s);
      const Step old_end = std::max(before, last_read(v, before));
      change(s, std::max(s, end) + 1, -bytes);
      if (end >= 0) {
        change(old_end + 1, end + 1, bytes);
        // The earlier instance now lives on, so it is no longer written over.
        change(old_end, old_end + 1, reuse(v, old_end));
        from = std::min(from, old_end);
      }
    }
    there_[at(s)] = false;
    for (ValueId v : graph_.inputs[op(s)]) {
      if (graph_.is_graph_input(v)) continue;
      const Step made = instance(v, s);
      const Step end = std::max(made, last_read(v, made));
      if (end >= s || is_kept_newest(v, made)) continue;
      change(end + 1, s + 1, -graph_.bytes[v].count());
      change(end, end + 1, -reuse(v, end));
    }
    give_up_state(s);
    change(s, s + 1, kGone);
    if (memory_.max(at(from), at(length_)) > limit_) {
      there_[at(s)] = true;
      for (const auto& [begin, end, amount] : undo_) memory_.add(at(begin), at(end), -amount);
      return false;
    }
    for (ValueId v : graph_.inputs[op(s)]) {
      if (!graph_.is_graph_input(v)) freed.push_back(instance(v, s));
    }
    auto& runs = runs_[op(s)];
    runs.erase(std::lower_bound(runs.begin(), runs.end(), s));
    for (ValueId v : graph_.inputs[op(s)]) {
      auto& reads = reads_[v];
      reads.erase(std::lower_bound(reads.begin(), reads.end(), s));
    }
    return true;
  }

  bool is_read(Step s) const {
    const auto outputs = graph_.outputs[op(s)];
    return std::any_of(outputs.begin(), outputs.end(), [&](ValueId v) { return last_read(v, s) >= 0; });
  }

  Plan plan() const {
    Plan result;
    for (StepId step : steps_.ids()) {
      if (there_[at(step.index())]) result.steps.push_back(steps_[step]);
    }
    REMAT_ASSERT_HEAVY(memory_matches(result), steps_.size(), result.steps.size());
    return result;
  }

 private:
  /// True if the incremental memory equals the simulator's for the remaining plan.
  bool memory_matches(const Plan& left) const {
    const std::vector<std::int64_t> counts = simulated(graph_, left);
    std::size_t next = 0;
    for (Step s = 0; s < length_; ++s) {
      if (there_[at(s)] && memory_.max(at(s), at(s) + 1) != counts[next++]) return false;
    }
    return true;
  }

  /// True if already one output, held from its earlier instance to the first step that erasing may relieve,
  /// exceeds the limit. Finds nearly all steps that must stay, at a tenth of the cost of trying.
  bool is_hopeless(Step s, Step before) const {
    if (rerun_state(graph_, op(s)) > Bytes()) return false;
    Step relieved = s;
    for (ValueId v : graph_.inputs[op(s)]) {
      if (graph_.is_graph_input(v)) continue;
      const Step made = instance(v, s);
      relieved = std::min(relieved, std::max(made, last_read_before(v, made, s)));
    }
    for (ValueId v : graph_.outputs[op(s)]) {
      if (last_read(v, s) < 0) continue;
      const Step from = std::max(before, last_read(v, before)) + 1;
      if (from < relieved && memory_.max(at(from), at(relieved)) + graph_.bytes[v].count() > limit_)
        return true;
    }
    return false;
  }

  static constexpr std::int64_t kGone = -kMaxCount;  ///< far below any step's memory
  OpId op(Step s) const { return steps_[StepId(s)]; }

  static std::vector<std::int64_t> simulated(const Graph& graph, const Plan& plan) {
    IndexVector<StepId, Bytes> memory;
    simulate(graph, plan, memory);
    std::vector<std::int64_t> counts;
    counts.reserve(memory.size());
    for (Bytes bytes : memory) counts.push_back(bytes.count());
    return counts;
  }
  void change(Step begin, Step end, std::int64_t amount) {
    end = std::min(end, length_);
    if (begin >= end || amount == 0) return;
    memory_.add(at(begin), at(end), amount);
    undo_.emplace_back(begin, end, amount);
  }
  /// Removes the rerun state that is held up to the step only for it.
  void give_up_state(Step s) {
    const auto& runs = runs_[op(s)];
    if (runs.back() != s) return;
    const Step before = runs[runs.size() - 2];
    const bool runs_once = runs.size() == 2;
    change(runs_once ? before : before + 1, s + 1, -rerun_state(graph_, op(s)).count());
  }
  Step previous_run(Step s) const {
    const auto& runs = runs_[op(s)];
    return *std::prev(std::lower_bound(runs.begin(), runs.end(), s));
  }
  Step next_run(Step s) const {
    const auto& runs = runs_[op(s)];
    const auto next = std::upper_bound(runs.begin(), runs.end(), s);
    return next == runs.end() ? length_ : *next;
  }
  bool is_kept_newest(ValueId v, Step made) const { return graph_.kept[v] && next_run(made) == length_; }
  /// Step that made the instance of v that step s reads.
  Step instance(ValueId v, Step s) const {
    const auto& runs = runs_[graph_.producer[v]];
    return *std::prev(std::lower_bound(runs.begin(), runs.end(), s));
  }
  /// Last reader of the instance of v made at `made` (the end of the plan for the newest of a kept output),
  /// or -1 where there is none. A step that is not `there_` does not count.
  Step last_read(ValueId v, Step made) const {
    const Step until = next_run(made);
    if (graph_.kept[v] && until == length_) return length_ - 1;
    return last_read_before(v, made, until);
  }
  /// The last step before `until` that reads the instance, or -1.
  Step last_read_before(ValueId v, Step made, Step until) const {
    const auto& reads = reads_[v];
    auto next = std::lower_bound(reads.begin(), reads.end(), until);
    while (next != reads.begin()) {
      --next;
      if (*next <= made) return -1;
      if (there_[at(*next)]) return *next;
    }
    return -1;
  }
  /// The overlap if the step is the last to read an instance of v; 0 if it made the instance itself.
  std::int64_t reuse(ValueId v, Step s) const { return reuse_of(graph_, op(s), v).count(); }
  /// No output of the step `made` is read at a step other than s.
  bool only_reader(Step made, Step s) const {
    const Step until = next_run(made);
    for (ValueId v : graph_.outputs[op(made)]) {
      if (is_kept_newest(v, made)) return false;
      const auto& reads = reads_[v];
      for (auto r = std::upper_bound(reads.begin(), reads.end(), made); r != reads.end() && *r < until; ++r) {
        if (*r != s) return false;
      }
    }
    return true;
  }

  const Graph& graph_;
  const IndexVector<StepId, OpId>& steps_;
  Step length_;
  std::vector<bool> there_;
  RangeMax memory_;
  std::int64_t limit_ = 0;
  IndexVector<OpId, std::vector<Step>> runs_;
  IndexVector<ValueId, std::vector<Step>> reads_;
  std::vector<std::tuple<Step, Step, std::int64_t>> undo_;
};

}  // namespace

Plan buy_back(const Graph& graph, const Plan& plan, Bytes budget, Limits& limits) {
  const Plan start = without_unread_steps(graph, plan);
  Eraser eraser(graph, start, budget);
  const auto length = narrow<Step>(start.steps.size());
  limits.spend(1 + length / 4);
  bool changed = true;
  for (int round = 0; round < 4 && changed && !limits.reached(); ++round) {
    changed = false;
    std::vector<std::pair<double, Step>> wanted;
    for (Step s = 0; s < length; ++s) {
      if (!eraser.is_recomputation(s)) continue;
      wanted.emplace_back(-eraser.saved(s) / (eraser.held(s) + 1.0), s);
    }
    std::sort(wanted.begin(), wanted.end());
    std::vector<Step> freed;
    for (const auto& [score, candidate] : wanted) {
      if (limits.spend(16)) break;
      if (!eraser.is_recomputation(candidate) || !eraser.try_erase(candidate, freed)) continue;
      changed = true;
      while (!freed.empty()) {
        const Step s = freed.back();
        freed.pop_back();
        if (eraser.is_recomputation(s) && !eraser.is_read(s)) eraser.try_erase(s, freed);
      }
    }
  }
  Plan result = eraser.plan();
  REMAT_ASSERT_HEAVY(is_no_worse(graph, plan, result, budget), budget, plan.steps.size(),
                     result.steps.size());
  return result;
}

}  // namespace remat::polish
