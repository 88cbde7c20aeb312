// MOCCASIN's retention intervals as a CP-SAT model (Bartan et al. 2023, section 2), on graphs with several
// outputs per op, workspaces, resident inputs and kept outputs.
//
// Time is a row of events; at most one op runs in each. Op u runs at most runs[u] times. Run k starts at
// event s and makes one instance of every output; instance v is retained over the half-open [s, e) and
// everything that reads it runs inside:
//
//   event      0  1  2  3  4  5  6
//   op 0       A==============|            run 0: [0, 5)
//   op 1          B=====|                  run 0: [1, 3)
//   op 2             C                     reads B at 2
//   op 1                   B========|      run 1: [4, 7), made from A at 4
//   op 3                         D         reads B at 6
//
// Intervals of one op never overlap, so a reader finds exactly one instance and it is the newest.
//
// Stage form (section 2.3; fixed order only): stage t ends with the first run of op t, before it ops j < t
// may run again, in ascending order and each once; a last stage after all first runs holds recomputations
// of kept outputs. First starts are constants. Of the n(n+1)/2 events those are left out at which no
// useful run can start.
// Event form (section 2.1): sum of runs[u] events, starts all different; in fixed order the first starts
// ascend. Every plan with at most runs[u] runs of each op is in it; the stage form leaves out plans that,
// between two first runs, run an op twice or run two ops against their order.
#pragma once

#include <map>
#include <optional>
#include <vector>

#include "cpsat/model.h"
#include "exact/interval_shape.h"
#include "remat/limits.h"

namespace remat::moccasin {

/// Minimizes the duration at a capacity (phase 2), or max(peak, capacity) (phase 1).
enum class Goal { kDuration, kPeak };

/// Stage form: only the peak of stages in [first, end) is minimized; every other stage stays below its
/// ceiling, resident inputs included.
struct Window {
  std::int64_t first = 0, end = 0;
  std::vector<Bytes> ceilings;  ///< of the num_ops + 1 stages
};

class Formulation {
 public:
  /// `capacity` is a budget, resident inputs included. `most` bounds the peak with Goal::kPeak. Once `limits`
  /// are reached the model stays incomplete: it must not be solved, and has no hint.
  Formulation(const Graph& graph, const Shape& shape, Goal goal, Bytes capacity, Bytes most,
              const Window* window = nullptr, Limits* limits = nullptr);

  const cpsat::Model& model() const { return model_; }
  /// Starts the search from a plan; returns false and adds nothing if the shape does not hold it.
  bool hint(const Plan& plan);
  /// The plan of a solution.
  Plan plan(const std::vector<std::int64_t>& solution) const;
  /// Duration, or peak with resident inputs, of an objective value or bound.
  std::int64_t real_objective(std::int64_t objective) const;
  /// False if sizes had to be rounded up to fit into CP-SAT's integers: then every plan of the model fits,
  /// but the model does not hold every plan that fits.
  bool exact_bytes() const { return exact_bytes_; }
  bool exact_durations() const { return exact_durations_; }

 private:
  struct Run {
    cpsat::Affine start;
    std::optional<cpsat::Literal> active;  ///< none: always
    std::vector<cpsat::Affine> ends;       ///< of the outputs, in the order of graph.outputs
    std::vector<cpsat::Literal> reads;     ///< a rerun is useful only if one of these holds
  };
  /// Run `k` of `reader` (or the end of the plan, where `reader` is none) reads instances of run `j`.
  struct Read {
    OpId producer, reader;
    std::size_t k, j;
    cpsat::Literal holds;
  };

  void choose_units();
  void add_runs(OpId op);
  cpsat::Affine add_event(std::vector<std::int64_t> domain);
  cpsat::Affine add_end(OpId op, ValueId v, const Run& run, int k);
  /// True if all runs of the op are fixed.
  bool settled(OpId op) const { return shape_.runs[op] == 1 || !shape_.pinned[op].empty(); }
  /// Stage form: the earliest end of an instance that a settled op made.
  std::int64_t certain_end(OpId op, ValueId v, std::size_t k) const;
  void add_memory(OpId op);
  void retain(const Run& run, cpsat::Affine end, Bytes bytes);
  void add_movable(const Run& run, cpsat::Affine start, cpsat::Affine end, std::int64_t demand);
  void add_settled(std::int64_t least, std::int64_t highest, const Window* window);
  void add_disjoint_starts();
  void add_reads(OpId op);
  void add_read(OpId producer, const std::vector<std::size_t>& outputs, OpId reader, std::size_t k);
  void add_kept(OpId op);
  void minimize_peak(Bytes capacity, Bytes most, const Window* window);
  void minimize_duration(Bytes capacity);
  std::span<const cpsat::Literal> when(const Run& run) const {
    return run.active ? std::span(&*run.active, 1) : std::span<const cpsat::Literal>();
  }
  std::int64_t units(Bytes bytes) const;
  std::int64_t room(Bytes bytes) const;

  const Graph& graph_;
  const Shape& shape_;
  Timeline time_;
  std::int64_t byte_unit_ = 1, duration_unit_ = 1;
  bool exact_bytes_ = true, exact_durations_ = true;
  bool is_complete_ = false;
  Goal goal_;

  cpsat::Model model_;
  std::map<std::int64_t, std::vector<std::int64_t>> domains_;  ///< of the variables that stand for events
  IndexVector<OpId, std::vector<Run>> runs_;
  std::vector<Read> reads_;
  std::vector<std::int64_t> intervals_;
  std::vector<cpsat::Affine> demands_;
  // For the cumulative constraint, by event.
  std::vector<std::int64_t> settled_;  ///< change of the demand of fixed intervals
  std::vector<std::int64_t> movable_;  ///< largest change of the demand of movable intervals
  std::vector<bool> boundary_;         ///< some movable interval may start or end here
  std::optional<cpsat::Var> peak_;
};

}  // namespace remat::moccasin
