// Simulated annealing over the sequence of steps, in cycles.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "planners/search/moves.h"
#include "planners/search/state.h"
#include "remat/limits.h"
#include "remat/planner.h"

namespace remat::search {

/// A plan with what it costs in the tracker's numbers.
struct Found {
  Plan plan;
  Wide duration = 0;
  std::int64_t peak = 0;  ///< units
};

/// One thread's search: a state, its moves, and the best plans seen.
class Annealer {
 public:
  Annealer(const StepModel& graph, OrderMode order, const Options& options, std::uint64_t seed);

  /// Forgets best and closest plan; the next `begin` uses this budget.
  void set_budget(Bytes budget);
  /// Forgets the best plan: the next `best` is the best since then.
  void forget() {
    best_.reset();
    unsaved_ = false;
  }
  /// Objective peak: from the next `begin` on the budget is just below the smallest peak seen, and `best`
  /// is the plan with that peak.
  void chase_peak(bool on) { chase_peak_ = on; }
  /// True where there is no move to make.
  bool idle() const { return total_weight_ == 0; }
  /// Continues from a valid plan, which also counts as seen.
  void begin(const Plan& plan);
  /// Cools from `hot` to `cold` (in mean recomputations) over about `moves` moves, or until a limit.
  void cycle(std::int64_t moves, double hot, double cold, Limits& limits);

  /// The fastest plan within the budget, if any was seen.
  const std::optional<Found>& best() const { return best_; }
  /// The plan with the smallest peak of those seen while none was within the budget.
  const std::optional<Found>& closest() const { return closest_; }
  /// The unit of temperatures: the mean duration of what may run again.
  double mean_recomputation() const { return mean_recomputation_; }
  void add_statistics(Counters& counters) const;

 private:
  void try_move();
  Move& draw_move();
  void settle_best();
  void keep_closest();
  void guess_price();
  void lower_budget();

  const StepModel* graph_;
  Options options_;
  State state_;
  std::vector<std::unique_ptr<Move>> moves_;
  int total_weight_ = 0;
  double mean_recomputation_ = 1;
  double temperature_ = 0;
  Bytes budget_;
  bool chase_peak_ = false;
  bool unsaved_ = false;  ///< the committed state is better than best_
  std::optional<Found> best_, closest_;
  std::int64_t moves_done_ = 0;
};

}  // namespace remat::search
