// The moves of the annealer, and their interface.
#pragma once

#include <memory>
#include <string_view>
#include <vector>

#include "planners/search/state.h"
#include "remat/planner.h"

namespace remat::search {

/// A move makes pending edits on the tracker. The annealer evaluates them exactly (`Tracker::change`), and
/// applies them (`commit`) or takes them back (`rollback`).
class Move {
 public:
  explicit Move(std::string_view name, int weight) : name_(name), weight_(weight) {}
  virtual ~Move() = default;

  /// Leaves edits pending and returns true, or returns false if the draw offers nothing to try; the caller
  /// then rolls back.
  virtual bool propose(State& state) = 0;

  std::string_view name() const { return name_; }
  int weight() const { return weight_; }  ///< share of the draws

  struct Statistics {
    std::int64_t drawn = 0, proposed = 0, taken = 0;
  };
  Statistics statistics;

 private:
  std::string_view name_;
  int weight_;
};

/// The moves that the options allow and the order mode supports.
std::vector<std::unique_ptr<Move>> make_moves(const Options& options, OrderMode order);

/// A random step over the budget, as far as a few draws find one.
OccId step_over_budget(State& state);

/// Objective peak: see deep_chain.cc.
std::unique_ptr<Move> make_deep_chain_move();

/// Free order: moves of first runs; see window.cc.
std::unique_ptr<Move> make_window_move();
std::unique_ptr<Move> make_slide_move();

/// Inserts a recomputation of a random use's value somewhere in the gap before the use. False where the
/// draw has no gap or may not be recomputed. `limit`: gives up where the duration alone is over it.
/// `across`: draws a few times for a gap that holds this step, where it is one.
bool insert_for_random_use(State& state, double limit, OccId across);

}  // namespace remat::search
