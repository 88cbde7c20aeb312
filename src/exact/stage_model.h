// Checkmate's stage model of a fixed order (Jain et al. 2020), on graphs with several outputs per op,
// workspaces, resident inputs, kept outputs and forbidden recomputation; and a relaxation of it that holds
// for every plan in fixed order, with stages of one or of many ops.
#pragma once

#include <algorithm>
#include <optional>
#include <vector>

#include "base/numbers.h"
#include "lp/model.h"
#include "remat/graph.h"
#include "remat/plan.h"

namespace remat {

/// What the rows say about the time inside a stage.
enum class StageRows {
  /// Holds for every plan in fixed order: reruns of a stage in any order and number. A lower bound.
  kAnyOrder,
  /// Checkmate's own: each op at most once per stage, in the graph's order. Stages of one op only.
  kGraphOrder,
};

struct StageSpec {
  Bytes budget;
  StageRows rows = StageRows::kAnyOrder;
  /// First op of each stage, ascending, the first 0. Empty: one stage per op.
  std::vector<OpId> first = {};
  /// Only plans within this duration are sought: ops that cost more than the rest are not rerun.
  std::optional<Duration> cutoff = std::nullopt;
  /// Rows for the memory at first runs inside stages of several ops. If stages end at the steps that are
  /// short of memory, these rows prove nothing more and take half of the time.
  bool first_runs = true;
};

/// Stage s is all steps after the first run of the op before first[s] up to the first run of the op before
/// first[s + 1]; after the last op comes one more stage if a kept output may be recomputed.
///   rerun(s, p) = 1   op p, first run in an earlier stage, runs in stage s
///   held(s, v) = 1    value v is in memory when stage s begins, and is read later
/// The objective is the duration beyond one run of each op.
///
/// Sizes and durations are whole units times a power of two, so that coefficients, right sides and their sums
/// are exact. The unit is the greatest common divisor. If that leaves too many digits, a larger unit is used
/// and everything, the budget included, is rounded down to it: plans that fit and are fast enough stay so,
/// and bounds hold.
class StageModel {
 public:
  StageModel(const Graph& graph, const StageSpec& spec);

  const lp::Model& model() const { return model_; }
  int num_stages() const { return stages_; }

  /// The largest objective of a plan of this duration.
  double objective_of(Duration duration) const;
  /// Least difference of two objectives.
  double objective_step() const { return cost_scale_; }
  /// Smallest duration that an objective of at least `bound` allows; objectives are multiples of the step.
  Duration duration_of(double bound) const;
  /// Values for the integer columns that a plan in fixed order takes; NaN for the rest.
  std::vector<double> start_from(const Plan& plan) const;
  /// The plan that holds the values whose column is at least `threshold` and recomputes, in the graph's
  /// order, only missing values (Checkmate's second phase). Stages of one op only.
  Plan plan_of(const std::vector<double>& x, double threshold = 0.5) const;
  /// The plan with the reruns of `x`, in the graph's order, without unread ones.
  Plan plan_as_run(const std::vector<double>& x) const;
  /// The same with each rerun as late in its stage as possible: just before its first reader there or, if
  /// only later stages read it, before the stage's last step.
  Plan plan_late(const std::vector<double>& x) const;

  /// Adds rows that every plan satisfies and the relaxed solution `x` violates, to a model with the same
  /// columns: a value made before stages a to b, which they read, rerun or pass on, is held into a, or its op
  /// runs in one of them; likewise its op's inputs, recursively. For integers the rows of single stages imply
  /// this; in a relaxation, half a rerun in each of two stages counts as two halves. Returns the number of
  /// rows.
  int add_paths(const std::vector<double>& x, lp::Model& target) const;

  /// By how much, as a share of the budget, a relaxed solution exceeds the budget at the first run of `at` if
  /// that ended a stage too and reruns are as late as possible. At most 0: the solution satisfies that larger
  /// model as well, which so proves nothing more.
  double excess_at(const std::vector<double>& x, OpId at) const;

  /// Column of a rerun or of a held value, or -1 where the structure decides.
  lp::Column rerun_column(int stage, OpId op) const { return rerun_[stage_row(stage, op)]; }
  lp::Column held_column(int stage, ValueId v) const { return held_[value_row(stage, v)].column; }

 private:
  /// A column, or a constant where column is -1.
  struct Literal {
    lp::Column column = -1;
    double constant = 0;
    bool is_zero() const { return column < 0 && constant == 0; }
    bool is_one() const { return column < 0 && constant == 1; }
  };
  class Row;
  class Paths;
  class Split;

  std::size_t stage_row(int stage, OpId op) const {
    return narrow<std::size_t>(stage) * graph_.num_ops() + narrow<std::size_t>(op.index());
  }
  std::size_t value_row(int stage, ValueId v) const {
    return narrow<std::size_t>(stage) * graph_.num_values() + narrow<std::size_t>(v.index());
  }
  Literal& held(int stage, ValueId v) { return held_[value_row(stage, v)]; }
  const Literal& held(int stage, ValueId v) const { return held_[value_row(stage, v)]; }
  Literal rerun(int stage, OpId op) const { return {rerun_column(stage, op), 0}; }
  static double value_at(const Literal& literal, const std::vector<double>& x) {
    return literal.column >= 0 ? x[at(literal.column)] : literal.constant;
  }
  OpId begin_of(int stage) const { return first_[at(stage)]; }
  OpId end_of(int stage) const { return first_[narrow<std::size_t>(stage) + 1]; }
  bool is_tail(int stage) const { return begin_of(stage) == end_of(stage); }
  bool before(int stage, ValueId v) const { return graph_.producer[v] < begin_of(stage); }
  bool made_by_op(ValueId v) const { return !graph_.is_graph_input(v); }
  /// Capped just above the budget.
  double memory(Bytes b) const {
    return real(std::min(b.count(), most_bytes_) / memory_unit_) * memory_scale_;
  }
  /// Memory of a step of the op alone, with all overwrites that are possible.
  double need(OpId op) const;
  /// Additional memory if the value stays in memory.
  double beside(OpId op, ValueId v) const;

  void choose_units(const StageSpec& spec);
  void find_uses();
  void add_columns();
  void add_availability(int stage);
  void add_memory(int stage, const StageSpec& spec);
  double add_last_run(int stage);
  void add_first_runs(int stage);
  void add_any_order(int stage, double slack);
  void add_graph_order(int stage);
  void find_through(int stage);
  Literal chained(Literal later, Literal now);
  lp::Column fraction(double lo = 0, double hi = 1) { return model_.add_column(0, lo, hi, false); }

  const Graph& graph_;
  lp::Model model_;
  double memory_scale_ = 1, cost_scale_ = 1, capacity_ = 0;  ///< the scales are powers of two
  std::int64_t memory_unit_ = 1, duration_unit_ = 1, most_bytes_ = 0;
  int stages_ = 0;           ///< the tail included
  std::vector<OpId> first_;  ///< stages_ + 1 entries
  IndexVector<OpId, int> stage_of_;
  IndexVector<OpId, bool> may_rerun_;
  IndexVector<OpId, int> last_rerun_;         ///< last stage in which a rerun can be useful, or -1
  IndexVector<ValueId, int> last_use_;        ///< last stage that may read the value; stages_ for kept ones
  IndexVector<ValueId, int> last_first_use_;  ///< last stage with a first run that reads it; stages_ for kept
  std::vector<lp::Column> rerun_;             ///< stage by op, -1: none
  std::vector<Literal> held_;                 ///< stage (one more for the end) by value
  IndexVector<ValueId, Literal> through_;     ///< of the stage at hand: see find_through
};

}  // namespace remat
