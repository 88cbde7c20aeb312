// Saved sets of an executor within the budget: simple ones first, then improved op by op.
#pragma once

#include <optional>

#include "executors/shape.h"
#include "remat/limits.h"

namespace remat::executors {

/// A choice and what its plan costs.
struct Found {
  Again again;
  Plan plan;
  Simulation cost;
};

/// State: the fastest choice within the budget, and the least peak of all choices tried.
class Search {
 public:
  Search(const Shape& shape, Bytes budget, Limits& limits)
      : shape_(shape), budget_(budget), limits_(limits) {}

  /// Settles a choice, simulates it and keeps it if it is better. Nothing if it cannot be settled.
  std::optional<Simulation> evaluate(const Again& again);
  /// Tries recomputing nothing and everything and, for partitioners, the minimum cuts between the halves.
  void start();
  /// If nothing is within the budget: from the choice of least peak, saves or drops ops while the peak falls.
  void lower();
  /// Saves more, op by op and region by region, the costliest first, within the budget.
  void improve();

  const std::optional<Found>& best() const { return best_; }
  const std::optional<Found>& lowest() const { return lowest_; }
  std::int64_t looked_at() const { return looked_at_; }

 private:
  void try_cuts();
  void improve_once(bool& better);

  const Shape& shape_;
  Bytes budget_;
  Limits& limits_;
  std::optional<Found> best_, lowest_;
  std::int64_t looked_at_ = 0;
};

}  // namespace remat::executors
