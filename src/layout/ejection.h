// Local search over layouts: what sticks out of a height is put back elsewhere, in place of what is there.
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

/// Ejection chains: at a height below the one known, items that stick out are taken away. One after the other
/// is put where what is in its way weighs least; that is taken away in turn, and weighs more the more often
/// it needed room (the penalties of Nagata and Bräysy 2009). A step is O(k log k) for k items beside one.
class EjectionSearch {
 public:
  /// `packing` must outlive it; `neighbours` are those of its items.
  EjectionSearch(const Packing& packing, std::shared_ptr<const Neighbours> neighbours, std::uint64_t seed);

  /// Lowers `packed` until it reaches `goal`, `units` of work are spent or `limits` is reached.
  void lower(Packed& packed, std::int64_t goal, std::int64_t units, Limits& limits);

  /// Below `capacity`, from `offsets` that may overlap; below 0 for an item without one. Returns the most
  /// units that found no place at one time, which is 0 where all did; `offsets` are those of the rest then.
  std::int64_t fit(std::vector<std::int64_t>& offsets, std::int64_t capacity, std::int64_t units,
                   Limits& limits);

 private:
  /// At offsets from here on `change` more (or less) is in the way.
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
  std::vector<std::int64_t> penalty_;  ///< how often an item took the place of others, and 1
  std::vector<std::int64_t> stays_;    ///< up to which step an item is not to be taken away again
  std::vector<Event> events_;          ///< scratch
  std::int64_t step_ = 0, work_ = 0;
  std::int64_t part_ = 2;    ///< the next height is lower by one such part of what is above the goal
  std::int64_t effort_ = 0;  ///< units for one height
};

}  // namespace remat::layout
