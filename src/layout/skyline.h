// A packing that grows from the bottom: the items placed, the height of each section, and the consequences
// for unplaced items. Incremental, with undo.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/numbers.h"
#include "base/sampled_check.h"
#include "layout/sections.h"

namespace remat::layout {

/// The state is `placed`, `offset` and `floor`; derived from it:
/// - top(s): the end of the highest item placed in section s, or 0;
/// - floor(s) >= top(s): nothing still to be placed in s will start lower. What lies between is waste;
/// - rest(s): the units in s still to be placed. floor(s) + rest(s) > capacity is a dead end;
/// - supports(s): how many items still to be placed in s have their low on its floor;
/// - low(i): the largest floor of the sections of item i, or a bound by `crossing` above that. The least low
///   in a section is its floor.
/// Items are placed flat: where all their sections have one floor, which is then their offset.
class Skyline {
 public:
  struct Rules {
    bool dominance = true;
    bool crossing = true;
  };
  Skyline(const Packing& packing, const Rules& rules);

  std::int32_t sections() const { return narrow<std::int32_t>(floor_.size()); }
  const Item& item(std::int32_t i) const { return items_[at(i)]; }
  std::size_t items() const { return items_.size(); }
  std::int64_t floor(std::int32_t s) const { return floor_[at(s)]; }
  std::int64_t rest(std::int32_t s) const { return rest_[at(s)]; }
  std::int64_t low(std::int32_t i) const { return low_[at(i)]; }
  std::int64_t offset(std::int32_t i) const { return offset_[at(i)]; }
  const std::vector<std::int64_t>& offsets() const { return offset_; }
  /// Items still to be placed in section s.
  std::span<const std::int32_t> waiting(std::int32_t s) const {
    return {waiting_.data() + row_[at(s)], at(count_[at(s)])};
  }
  /// The item whose end is top(s), or -1.
  std::int32_t top_item(std::int32_t s) const { return top_item_[at(s)]; }
  std::int64_t top(std::int32_t s) const { return top_[at(s)]; }

  /// Puts a flat item on its floor. `propagate` must follow.
  void place(std::int32_t i);
  /// Places an item just below `ceiling`; floors do not change.
  void hang(std::int32_t i, std::int64_t ceiling);
  /// Nothing will start in s below `floor`. `propagate` must follow.
  void raise(std::int32_t s, std::int64_t floor);
  /// Propagates all consequences for packings below the capacity. False at a dead end, see `dead_end()`.
  bool propagate(std::int64_t capacity);
  /// The section that could not take its items, or -1 where the dead end has none.
  std::int32_t dead_end() const { return dead_end_; }

  /// Everything since `mark` is undone by `undo(mark)`.
  std::size_t mark() const { return trail_.size(); }
  void undo(std::size_t mark);
  /// Calls see(section, floor before) for each rise of a floor since `mark`, the first of a section last.
  template <class See>
  void rises_since(std::size_t mark, See&& see) const {
    for (std::size_t k = trail_.size(); k > mark; --k) {
      if (trail_[k - 1].what == What::kFloor) see(trail_[k - 1].at, trail_[k - 1].before);
    }
  }
  /// Units times sections of all that is placed, rounded down so that the whole is at most 2^40.
  std::int64_t placed_area() const { return placed_area_; }
  /// Elementary steps so far.
  std::int64_t work() const { return work_; }

 private:
  enum class What : std::uint8_t { kFloor, kTop, kTopItem, kLow, kGone };
  struct Change {
    What what;
    std::int32_t at;
    std::int64_t before;
    std::int32_t supports = 0;  ///< of a section, before its floor changed
  };

  void set_floor(std::int32_t s, std::int64_t floor, std::int32_t supports);
  void set_low(std::int32_t i, std::int64_t low);
  void undo_low(std::int32_t i, std::int64_t before);
  void take_away(std::int32_t i);
  void put_back(std::int32_t i);
  void touch(std::int32_t s);
  void lift_above(std::int32_t i);
  bool settle(std::int32_t s, std::int64_t capacity);
  bool fits(std::int32_t s, std::int64_t capacity);
  bool settle_crossing(std::int32_t boundary, std::int64_t capacity);
  bool leaves_a_gap(std::size_t mark) const;
  bool fail(std::int32_t section);
  bool is_rebuilt_alike() const;
  std::int64_t lowest_crossing(std::int32_t boundary, std::int64_t capacity) const;
  bool sums(std::int32_t boundary, bool ending, std::int64_t base, std::vector<std::int64_t>& into) const;

  std::vector<Item> items_;
  Rules rules_;
  std::vector<std::int64_t> floor_, top_, rest_;
  std::vector<std::int32_t> top_item_, supports_;
  std::vector<std::int64_t> low_, offset_;

  // waiting_[row_[s], row_[s] + count_[s]): items still to be placed in s. Item i in its k-th section stands
  // at where_[place_[i] + k].
  std::vector<std::int32_t> waiting_, where_;
  std::vector<std::size_t> row_, place_;
  std::vector<std::int32_t> count_;
  // starting_[begin_[s], begin_[s + 1]): all items that begin in s.
  std::vector<std::int32_t> starting_;
  std::vector<std::size_t> begin_;

  std::vector<Change> trail_;
  std::size_t propagated_ = 0;  ///< trail entries already propagated
  std::vector<std::int32_t> queue_, boundaries_;
  std::vector<std::int32_t> filled_;  ///< sections whose floor was set by `place`
  std::vector<bool> queued_;
  mutable std::vector<std::int64_t> looked_at_;  ///< of each section: its last look in `leaves_a_gap`
  std::vector<bool> boundary_queued_;
  std::int32_t dead_end_ = -1;
  std::vector<std::int64_t> area_;
  std::int64_t placed_area_ = 0;
  std::int64_t work_ = 0;
  SampledCheck sampled_;
  mutable std::int64_t looks_ = 0;
  mutable std::vector<std::int64_t> left_, right_;  ///< scratch of `lowest_crossing`
};

}  // namespace remat::layout
