// Sets of an executor that keep the budget: what is simple, made better op by op.
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

/// State: the fastest choice within the budget, and the least peak of all that were looked at.
class Search {
 public:
  Search(const Shape& shape, Bytes budget, Limits& limits)
      : shape_(shape), budget_(budget), limits_(limits) {}

  /// Simulates a choice, settled before, and keeps it where it is better. Nothing where it does not settle.
  std::optional<Simulation> look(const Again& again);
  /// Nothing and all again; of partitioners also what minimum cuts between the halves say.
  void start();
  /// Where nothing keeps the budget: from the least peak on, op by op saved or not, as long as peaks fall.
  void lower();
  /// Saves more, op by op and region by region, the dearest first, as long as the budget is kept.
  void improve();

  const std::optional<Found>& best() const { return best_; }
  const std::optional<Found>& lowest() const { return lowest_; }
  std::int64_t looked_at() const { return looked_at_; }

 private:
  void look_at_cuts();
  void improve_once(bool& better);

  const Shape& shape_;
  Bytes budget_;
  Limits& limits_;
  std::optional<Found> best_, lowest_;
  std::int64_t looked_at_ = 0;
};

}  // namespace remat::executors
