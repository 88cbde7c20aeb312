// The choices of an executor as an integer program: the recomputed ops, and the values in memory over time.
#pragma once

#include <optional>
#include <vector>

#include "executors/shape.h"
#include "lp/model.h"

namespace remat::executors {

/// A possible step: a recomputation that a backward op triggers.
struct Slot {
  OpId op;
  bool again = false;
  lp::Column column = -1;  ///< 1: the step takes place
};

/// Binary columns: each op in each place where it may be recomputed. Continuous columns: whether a value is
/// in memory between neighbouring moments at which it is recomputed or read; given the binaries, their least
/// values match the simulator, except for overwrites by recomputed ops (always counted) and, for
/// partitioners, the order of reads within one place. So the optimum is a lower bound for the executor, and
/// its choice is simulated.
class Model {
 public:
  Model(const Shape& shape, Bytes budget);

  /// True if the model has at most `most` steps times values. Check before building it.
  static bool fits(const Shape& shape, std::int64_t most);

  const lp::Model& program() const { return model_; }
  /// Durations are divided by it in the objective.
  double unit() const { return unit_; }
  Again again_of(const std::vector<double>& x) const;
  /// The columns of a choice; NaN where the solver has to fill them in.
  std::vector<double> start_of(const Again& again) const;
  /// Excludes exactly this choice from now on.
  void forbid(const Again& again);

 private:
  struct Event {
    int slot;
    bool makes;  ///< else it reads
  };
  /// The columns and events of a value that a forward op makes.
  struct Presence {
    int last = -1;                    ///< slot of its last use in the forward half
    std::vector<Event> events;        ///< in the backward half
    std::vector<lp::Column> columns;  ///< in memory before event i, or after the last one; -1: never
    bool is_kept = false;
  };
  struct Row;

  void add_slots();
  void add_presences();
  void add_presence(ValueId v);
  void add_executor_rules();
  void add_region_rules(const CheckpointRegion& region);
  void add_memory_rows();
  void add_value(Row& row, ValueId v, int slot) const;
  void add_over(Row& row, int slot) const;
  void add_states(std::vector<Row>& rows) const;
  lp::Column run_of(OpId op) const;

  const Shape& shape_;
  const Graph& graph_;
  Bytes budget_;
  double unit_ = 1;
  lp::Model model_;
  std::vector<Slot> slots_;
  IndexVector<OpId, int> slot_;                ///< of the first run
  IndexVector<OpId, std::vector<int>> again_;  ///< slots of the second
  IndexVector<ValueId, Presence> presence_;
};

}  // namespace remat::executors
