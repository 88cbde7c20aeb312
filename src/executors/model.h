// The choices of an executor as an integer program: which ops run again, and what is in memory when.
#pragma once

#include <optional>
#include <vector>

#include "executors/shape.h"
#include "lp/model.h"

namespace remat::executors {

/// A step that may be: a backward op asks for it.
struct Slot {
  OpId op;
  bool again = false;
  lp::Column column = -1;  ///< 1: it takes place; of `again`
};

/// Binary: each op that runs again in each place where it may. Continuous: whether a value is in memory
/// between two neighbouring moments at which it is made again or read; given the binaries, the least that
/// meets the rows is what the simulator counts, but for what an op writes over when it runs again (counted
/// as written over always) and, of partitioners, the order of reads within one place. So what the program
/// says is a lower bound for the executor, and what it chooses is simulated.
class Model {
 public:
  Model(const Shape& shape, Bytes budget);

  /// No more than `most` steps times values; to be asked first.
  static bool fits(const Shape& shape, std::int64_t most);

  const lp::Model& program() const { return model_; }
  /// Durations are divided by it in the objective.
  double unit() const { return unit_; }
  Again again_of(const std::vector<double>& x) const;
  /// Columns of a choice, NaN where they follow.
  std::vector<double> start_of(const Again& again) const;
  /// From now on this very choice is none.
  void forbid(const Again& again);

 private:
  struct Event {
    int slot;
    bool makes;  ///< else it reads
  };
  /// Of a value that a forward op makes.
  struct Presence {
    int last = -1;                    ///< slot of its last use in the forward half
    std::vector<Event> events;        ///< in the backward half
    std::vector<lp::Column> columns;  ///< before event i; after the last one; -1: surely not there
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
