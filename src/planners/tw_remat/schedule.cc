// Algorithm 1 on our model. In free order its sequence is a valid plan. Additions of our model:
// - fixed order: whenever an op is to run for the first time, all earlier ops that have not run come first,
//   in the graph's order; all they read has an instance by then;
// - ops that forbid recomputation, and ops all of whose read outputs are kept, are held from their first run
//   to the end;
// - the paper's one final op is the set of ops that nobody reads. A training step has one of them per
//   parameter; computing those of a part only when everything else is done would compute the part again, so
//   in free order such an op runs as soon as all it reads is held (fixed order sees to it by itself).
#include <algorithm>

#include "base/numbers.h"
#include "planners/tw_remat/tw_remat.h"
#include "polish/polish.h"

namespace remat::tw_remat {
namespace {

using decomposition::SeparatorTree;

class Scheduler {
 public:
  Scheduler(const Graph& graph, const Separators& separators, std::int64_t k, OrderMode order,
            std::int64_t max_steps, Limits& limits)
      : graph_(graph),
        tree_(separators.tree),
        k_(k),
        fixed_(order == OrderMode::kFixed),
        max_steps_(max_steps),
        limits_(limits),
        held_(graph.num_ops(), 0),
        ran_(graph.num_ops(), false),
        mark_(graph.num_ops(), 0),
        terminal_(graph.num_ops(), false),
        stays_(graph.num_ops(), false),
        before_(predecessor_rows(graph)) {
    for (OpId op : graph.ops()) {
      bool read = false, all_kept = true;
      for (ValueId v : graph.outputs[op]) {
        if (graph.readers[v].empty()) continue;
        read = true;
        all_kept = all_kept && graph.kept[v];
      }
      terminal_[op] = !read;
      stays_[op] = !graph.recomputable[op] || !read || all_kept;
    }
  }

  std::optional<Plan> run() {
    std::vector<OpId> finals;
    for (OpId op : graph_.ops()) {
      if (terminal_[op]) finals.push_back(op);
    }
    compute(0, finals);
    if (stopped_) return std::nullopt;
    return Plan{IndexVector<StepId, OpId>(std::move(steps_))};
  }

 private:
  static Rows<OpId, OpId> predecessor_rows(const Graph& graph) {
    Rows<OpId, OpId> rows;
    for (OpId op : graph.ops()) rows.append_row(predecessors(graph, op));
    return rows;
  }
  bool in_part(std::int32_t node, OpId op) const { return tree_.in_part(node, op.index()); }
  const SeparatorTree::Node& part(std::int32_t node) const { return tree_.nodes[at(node)]; }
  bool must_run(OpId op) const { return held_[op] == 0 && !(terminal_[op] && ran_[op]); }

  void hold(const std::vector<OpId>& ops) {
    for (OpId op : ops) ++held_[op];
  }
  void release(const std::vector<OpId>& ops) {
    for (OpId op : ops) --held_[op];
  }

  /// Ops of the part that are needed for the targets and not held, in the graph's order.
  std::vector<OpId> needed(std::int32_t node, const std::vector<OpId>& targets) {
    ++generation_;
    std::vector<OpId> found;
    const auto visit = [&](OpId op) {
      if (mark_[op] == generation_ || !must_run(op) || !in_part(node, op)) return;
      mark_[op] = generation_;
      found.push_back(op);
    };
    for (OpId op : targets) visit(op);
    for (std::size_t i = 0; i < found.size(); ++i) {
      for (OpId p : before_[found[i]]) visit(p);
    }
    stopped_ = stopped_ || limits_.spend(1 + std::ssize(found) / 8);
    std::sort(found.begin(), found.end());
    return found;
  }

  std::vector<OpId> in_child(std::int32_t child, std::span<const OpId> ops) const {
    std::vector<OpId> result;
    for (OpId op : ops) {
      if (must_run(op) && in_part(child, op)) result.push_back(op);
    }
    return result;
  }

  /// Computes the targets, all in the part, and holds each once for the caller.
  void compute(std::int32_t node, const std::vector<OpId>& targets) {
    std::vector<OpId> open = needed(node, targets);
    if (stopped_) return;
    if (part(node).bags < k_ || part(node).children.empty()) {
      for (OpId op : open) {
        emit(op);
        ++held_[op];
      }
      hold(targets);
      release(open);
      return;
    }
    std::vector<OpId> own;
    std::copy_if(open.begin(), open.end(), std::back_inserter(own),
                 [&](OpId op) { return tree_.owner[at(op)] == node; });
    for (OpId op : own) {
      std::vector<OpId> inputs;
      for (std::int32_t child : part(node).children) {
        const std::vector<OpId> wanted = in_child(child, before_[op]);
        if (wanted.empty()) continue;
        compute(child, wanted);
        if (stopped_) return;
        inputs.insert(inputs.end(), wanted.begin(), wanted.end());
      }
      emit(op);
      ++held_[op];
      release(inputs);
    }
    for (std::int32_t child : part(node).children) {
      const std::vector<OpId> wanted = in_child(child, targets);
      if (!wanted.empty()) compute(child, wanted);
      if (stopped_) return;
      release(wanted);
    }
    hold(targets);
    release(own);
  }

  void emit(OpId op) {
    if (stays_[op] && ran_[op]) return;
    if (!ran_[op]) {
      if (fixed_) {
        for (; next_ < op; ++next_) {
          if (!ran_[next_]) push(next_);
        }
      } else {
        for (OpId other : graph_.after[op]) run_missing(other);
        if (ran_[op]) return;
      }
    }
    push(op);
    if (!fixed_) run_ready_finals(op);
  }

  void push(OpId op) {
    steps_.push_back(op);
    if (!ran_[op]) {
      ran_[op] = true;
      if (stays_[op]) ++held_[op];
    }
    if (std::ssize(steps_) > max_steps_) stopped_ = true;
  }

  /// Runs an op that must have run once, with all that it needs and that has never run.
  void run_missing(OpId op) {
    std::vector<OpId> missing;
    std::vector<bool> seen(graph_.num_ops(), false);
    const auto visit = [&](OpId one) {
      if (ran_[one] || seen[at(one)]) return;
      seen[at(one)] = true;
      missing.push_back(one);
    };
    visit(op);
    for (std::size_t i = 0; i < missing.size(); ++i) {
      for (OpId p : before_[missing[i]]) visit(p);
      for (OpId a : graph_.after[missing[i]]) visit(a);
    }
    std::sort(missing.begin(), missing.end());
    for (OpId one : missing) push(one);
  }

  void run_ready_finals(OpId made) {
    for (ValueId v : graph_.outputs[made]) {
      for (OpId reader : graph_.readers[v]) {
        if (!terminal_[reader] || ran_[reader]) continue;
        const auto inputs = before_[reader];
        const auto after = graph_.after[reader];
        const bool ready =
            std::all_of(inputs.begin(), inputs.end(), [&](OpId p) { return p == made || held_[p] > 0; }) &&
            std::all_of(after.begin(), after.end(), [&](OpId p) { return ran_[p]; });
        if (ready) push(reader);
      }
    }
  }

  const Graph& graph_;
  const SeparatorTree& tree_;
  std::int64_t k_;
  bool fixed_;
  std::int64_t max_steps_;
  Limits& limits_;
  std::vector<OpId> steps_;
  IndexVector<OpId, std::int32_t> held_;  ///< calls that hold the op's outputs
  IndexVector<OpId, bool> ran_;
  IndexVector<OpId, std::int64_t> mark_;
  IndexVector<OpId, bool> terminal_;  ///< nobody reads an output
  IndexVector<OpId, bool> stays_;     ///< never worth a second run
  Rows<OpId, OpId> before_;
  OpId next_{0};  ///< all earlier ops have run (fixed order)
  std::int64_t generation_ = 0;
  bool stopped_ = false;
};

}  // namespace

std::optional<Plan> plan_for(const Graph& graph, const Separators& separators, std::int64_t k,
                             OrderMode order, std::int64_t max_steps, Limits& limits) {
  auto plan = Scheduler(graph, separators, k, order, max_steps, limits).run();
  if (plan) plan = polish::without_unread_steps(graph, *plan);
  return plan;
}

}  // namespace remat::tw_remat
