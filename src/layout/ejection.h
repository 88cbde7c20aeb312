// Local search over layouts by ejection chains: items above a height are placed lower, in place of others.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "layout/first_fit.h"
#include "layout/neighbours.h"
#include "layout/sections.h"
#include "remat/limits.h"
#include "remat/random.h"

namespace remat::layout {

/// Ejection chains: at a height below the best known one, items above it are removed. Each is then placed
/// where the items in its way have the least weight; these are removed in turn. An item's weight grows with
/// the number of its placements (the penalties of Nagata and Bräysy 2009). A step is O(k log k) for k items
/// alive beside it.
class EjectionSearch {
 public:
  /// `packing` must outlive it; `neighbours` are those of its items.
  EjectionSearch(const Packing& packing, std::shared_ptr<const Neighbours> neighbours, std::uint64_t seed);

  /// Lowers `packed` until it reaches `goal`, `units` of work are spent or `limits` is reached.
  void lower(Packed& packed, std::int64_t goal, std::int64_t units, Limits& limits);

  /// Looks for a layout below `capacity`, from `offsets` that may overlap; negative: none. Returns the most
  /// unplaced units at one time, 0 if all items are placed; `offsets` receives those of the placed items.
  std::int64_t fit(std::vector<std::int64_t>& offsets, std::int64_t capacity, std::int64_t units,
                   Limits& limits);

 private:
  /// From this offset on, the weight in the way changes by `change`.
  struct Event {
    std::int64_t at;
    std::int64_t change;
  };

  void take_out_above(std::int64_t capacity);
  void take_out_overlaps();
  std::int64_t most_out() const;
  bool settle(std::int64_t capacity, std::int64_t units, Limits& limits);
  std::int64_t cheapest_place(std::int32_t i, std::int64_t capacity);
  void put(std::int32_t i, std::int64_t offset);

  std::int64_t weight(std::int32_t i) const;
  std::int64_t end(std::int32_t i) const { return offset_[at(i)] + packing_->items[at(i)].size; }

  const Packing* packing_;
  Random random_;
  std::shared_ptr<const Neighbours> neighbours_;
  std::vector<std::int64_t> offset_;   ///< the state: of each item, or -1
  std::vector<std::int32_t> out_;      ///< items without an offset
  std::vector<std::int64_t> area_;     ///< scaled
  std::vector<std::int64_t> penalty_;  ///< 1 + how often the item displaced others
  std::vector<std::int64_t> stays_;    ///< step up to which an item must not be removed again
  std::vector<Event> events_;          ///< scratch
  std::int64_t step_ = 0, work_ = 0;
  std::int64_t part_ = 2;    ///< the next height is lower by 1 / part_ of the excess over the goal
  std::int64_t effort_ = 0;  ///< units for one height
};

}  // namespace remat::layout
