// Saved sets of an executor within the budget: simple ones first, then improved op by op.
#pragma once

#include <optional>

#include "executors/shape.h"
#include "remat/limits.h"

namespace remat::executors {

/// A choice and what its plan costs.
struct Found {
  Choice choice;
  Plan plan;
  Simulation cost;
};

/// State: the fastest choice within the budget, and the least peak of all choices tried.
class Search {
 public:
  Search(const Shape& shape, Bytes budget, Limits& limits)
      : shape_(shape), budget_(budget), limits_(limits) {}

  /// Settles a choice, simulates it and keeps it if it is better. Nothing if it cannot be settled.
  std::optional<Simulation> evaluate(const Choice& choice);
  /// Tries recomputing nothing and everything and, for partitioners, the minimum cuts between the halves;
  /// with a host also offloading everything.
  void start();
  /// If nothing is within the budget: from the choice of least peak, saves, drops or offloads while the peak
  /// falls.
  void lower();
  /// Saves more, op by op and region by region, the costliest first, within the budget; with a host also
  /// exchanges recomputing and offloading.
  void improve();

  const std::optional<Found>& best() const { return best_; }
  const std::optional<Found>& lowest() const { return lowest_; }
  std::int64_t looked_at() const { return looked_at_; }

 private:
  void try_cuts();
  /// What happens to an op's results at the end of the forward half.
  enum class Fate { kSaved, kAgain, kOffloaded };
  struct Move {
    std::vector<OpId> ops;
    Fate fate = Fate::kSaved;
  };
  bool may(OpId op, Fate fate) const;
  Fate fate_of(const Choice& choice, OpId op) const;
  /// Time of a second run, or of copies.
  Duration time_of(OpId op, Fate fate) const;
  Duration gain_of(const Move& move) const;
  /// Nothing if the move changes nothing.
  std::optional<Choice> changed(const Choice& choice, const Move& move) const;
  bool fits(const Simulation& cost) const;
  void improve_once(bool& better);

  const Shape& shape_;
  Bytes budget_;
  Limits& limits_;
  std::optional<Found> best_, lowest_;
  std::int64_t looked_at_ = 0;
};

}  // namespace remat::executors
