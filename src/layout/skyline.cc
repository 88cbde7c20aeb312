#include "layout/skyline.h"

#include <algorithm>
#include <limits>

#include "base/numbers.h"
#include "remat/check.h"

namespace remat::layout {

constexpr std::int64_t kNever = std::numeric_limits<std::int64_t>::max();

Skyline::Skyline(const Packing& packing, const Rules& rules)
    : items_(packing.items),
      rules_(rules),
      floor_(packing.load.size(), 0),
      top_(packing.load.size(), 0),
      rest_(packing.load),
      top_item_(packing.load.size(), -1),
      supports_(packing.load.size(), 0),
      low_(items_.size(), 0),
      offset_(items_.size(), -1),
      row_(packing.load.size() + 1, 0),
      place_(items_.size(), 0),
      count_(packing.load.size(), 0),
      starting_(items_.size()),
      begin_(packing.load.size() + 1, 0),
      queued_(packing.load.size(), false),
      looked_at_(packing.load.size(), 0),
      boundary_queued_(packing.load.size(), false) {
  const auto area = [](const Item& item) { return Wide{item.size} * (item.end - item.first); };
  Wide whole = 0;
  for (const Item& item : items_) whole += area(item);
  int shift = 0;
  while (whole >> shift > Wide{1} << 40) ++shift;
  for (const Item& item : items_) area_.push_back(capped(area(item) >> shift));
  std::size_t places = 0;
  for (std::size_t i = 0; i < items_.size(); ++i) {
    place_[i] = places;
    places += at(items_[i].end - items_[i].first);
    for (std::int32_t s = items_[i].first; s < items_[i].end; ++s) ++row_[at(s) + 1];
  }
  for (const Item& item : items_) ++begin_[at(item.first) + 1];
  for (std::size_t s = 1; s < row_.size(); ++s) {
    row_[s] += row_[s - 1];
    begin_[s] += begin_[s - 1];
  }
  std::vector<std::size_t> next = begin_;
  for (std::size_t i = 0; i < items_.size(); ++i) {
    starting_[next[at(items_[i].first)]++] = narrow<std::int32_t>(i);
  }
  waiting_.resize(places);
  where_.resize(places);
  for (std::size_t i = 0; i < items_.size(); ++i) {
    for (std::int32_t s = items_[i].first; s < items_[i].end; ++s) {
      where_[place_[i] + at(s - items_[i].first)] = count_[at(s)];
      waiting_[row_[at(s)] + at(count_[at(s)]++)] = narrow<std::int32_t>(i);
    }
  }
  supports_ = count_;
}

void Skyline::touch(std::int32_t s) {
  if (queued_[at(s)]) return;
  queued_[at(s)] = true;
  queue_.push_back(s);
}

void Skyline::set_floor(std::int32_t s, std::int64_t floor, std::int32_t supports) {
  trail_.push_back({What::kFloor, s, floor_[at(s)], supports_[at(s)]});
  floor_[at(s)] = floor;
  supports_[at(s)] = supports;
}

void Skyline::set_low(std::int32_t i, std::int64_t low) {
  const std::int64_t before = low_[at(i)];
  trail_.push_back({What::kLow, i, before});
  low_[at(i)] = low;
  const Item& item = items_[at(i)];
  for (std::int32_t s = item.first; s < item.end; ++s) {
    if (floor_[at(s)] == before) {
      if (--supports_[at(s)] == 0) touch(s);
    } else if (floor_[at(s)] == low) {
      ++supports_[at(s)];
    }
  }
  work_ += item.end - item.first;
}

void Skyline::undo_low(std::int32_t i, std::int64_t before) {
  const Item& item = items_[at(i)];
  for (std::int32_t s = item.first; s < item.end; ++s) {
    if (floor_[at(s)] == before) {
      ++supports_[at(s)];
    } else if (floor_[at(s)] == low_[at(i)]) {
      --supports_[at(s)];
    }
  }
  low_[at(i)] = before;
}

void Skyline::take_away(std::int32_t i) {
  const Item& item = items_[at(i)];
  for (std::int32_t s = item.first; s < item.end; ++s) {
    std::int32_t* row = waiting_.data() + row_[at(s)];
    const std::int32_t hole = where_[place_[at(i)] + at(s - item.first)];
    const std::int32_t last = row[--count_[at(s)]];
    std::swap(row[hole], row[count_[at(s)]]);
    where_[place_[at(last)] + at(s - items_[at(last)].first)] = hole;
    where_[place_[at(i)] + at(s - item.first)] = count_[at(s)];
    rest_[at(s)] -= item.size;
    if (low_[at(i)] == floor_[at(s)] && --supports_[at(s)] == 0) touch(s);
  }
  trail_.push_back({What::kGone, i, 0});
  placed_area_ += area_[at(i)];
  work_ += item.end - item.first;
}

void Skyline::put_back(std::int32_t i) {
  // Undo runs in reverse, so the item is just behind the end of each row.
  const Item& item = items_[at(i)];
  for (std::int32_t s = item.first; s < item.end; ++s) {
    ++count_[at(s)];
    rest_[at(s)] += item.size;
    if (low_[at(i)] == floor_[at(s)]) ++supports_[at(s)];
  }
  offset_[at(i)] = -1;
  placed_area_ -= area_[at(i)];
}

void Skyline::place(std::int32_t i) {
  const Item& item = items_[at(i)];
  const std::int64_t end = low_[at(i)] + item.size;
  take_away(i);
  offset_[at(i)] = low_[at(i)];
  for (std::int32_t s = item.first; s < item.end; ++s) {
    trail_.push_back({What::kTop, s, top_[at(s)]});
    trail_.push_back({What::kTopItem, s, top_item_[at(s)]});
    top_[at(s)] = end;
    top_item_[at(s)] = i;
    set_floor(s, end, 0);
    filled_.push_back(s);
  }
  lift_above(i);
}

/// Raises the lows of items that overlap a placed one to its end. Visits each item once, not per section.
void Skyline::lift_above(std::int32_t placed) {
  const Item& below = items_[at(placed)];
  const std::int64_t end = floor_[at(below.first)];
  const auto lift = [&](std::int32_t i) {
    if (low_[at(i)] < end) {
      set_low(i, end);
    } else if (low_[at(i)] == end) {
      const std::int32_t last = std::min(items_[at(i)].end, below.end);
      for (std::int32_t s = std::max(items_[at(i)].first, below.first); s < last; ++s) ++supports_[at(s)];
    }
  };
  for (std::int32_t i : waiting(below.first)) lift(i);
  for (std::size_t k = begin_[at(below.first) + 1]; k < begin_[at(below.end)]; ++k) {
    if (offset_[at(starting_[k])] < 0) lift(starting_[k]);
  }
  for (std::int32_t s = below.first; s < below.end; ++s) {
    if (supports_[at(s)] == 0) touch(s);
  }
  work_ += count_[at(below.first)];
  work_ += narrow<std::int64_t>(begin_[at(below.end)] - begin_[at(below.first)]);
}

void Skyline::hang(std::int32_t i, std::int64_t ceiling) {
  take_away(i);
  offset_[at(i)] = ceiling - items_[at(i)].size;
}

void Skyline::raise(std::int32_t s, std::int64_t floor) {
  set_floor(s, floor, 0);
  touch(s);
}

bool Skyline::fail(std::int32_t section) {
  for (std::int32_t s : queue_) queued_[at(s)] = false;
  for (std::int32_t b : boundaries_) boundary_queued_[at(b)] = false;
  queue_.clear();
  filled_.clear();
  boundaries_.clear();
  dead_end_ = section;
  return false;
}

/// Raises the lows in section s to its floor, and its floor to the least low.
bool Skyline::settle(std::int32_t s, std::int64_t capacity) {
  if (supports_[at(s)] > 0 || count_[at(s)] == 0) return fits(s, capacity);
  const std::int64_t floor = floor_[at(s)];
  std::int64_t least = kNever;
  std::int32_t supports = 0;
  for (std::int32_t i : waiting(s)) {
    if (low_[at(i)] < floor) set_low(i, floor);
    if (low_[at(i)] > least) continue;
    supports = low_[at(i)] == least ? supports + 1 : 1;
    least = low_[at(i)];
  }
  work_ += count_[at(s)];
  if (least > floor) {
    set_floor(s, least, supports);
  } else {
    supports_[at(s)] = supports;
  }
  return fits(s, capacity);
}

bool Skyline::fits(std::int32_t s, std::int64_t capacity) {
  if (rest_[at(s)] == 0) return true;
  if (floor_[at(s)] + rest_[at(s)] > capacity) return false;
  if (!rules_.crossing) return true;
  for (std::int32_t b : {s, s + 1}) {
    if (b == 0 || b == sections() || boundary_queued_[at(b)]) continue;
    boundary_queued_[at(b)] = true;
    boundaries_.push_back(b);
  }
  return true;
}

bool Skyline::propagate(std::int64_t capacity) {
  const std::size_t mark = propagated_;
  for (std::int32_t s : filled_) {
    if (!fits(s, capacity)) return fail(s);
  }
  filled_.clear();
  while (!queue_.empty() || !boundaries_.empty()) {
    if (!queue_.empty()) {
      const std::int32_t s = queue_.back();
      queue_.pop_back();
      queued_[at(s)] = false;
      if (!settle(s, capacity)) return fail(s);
    } else {
      const std::int32_t b = boundaries_.back();
      boundaries_.pop_back();
      boundary_queued_[at(b)] = false;
      if (!settle_crossing(b, capacity)) return fail(b);
    }
  }
  if (rules_.dominance && leaves_a_gap(mark)) return fail(-1);
  propagated_ = trail_.size();
  REMAT_ASSERT_HEAVY(!sampled_.due(10 * std::ssize(where_)) || is_rebuilt_alike(), trail_.size());
  return true;
}

/// Compares the derived values of unplaced items with ones rebuilt from the rows.
bool Skyline::is_rebuilt_alike() const {
  for (std::int32_t s = 0; s < sections(); ++s) {
    std::int64_t rest = 0;
    std::int32_t supports = 0;
    for (std::int32_t i : waiting(s)) {
      if (low_[at(i)] < floor_[at(s)] || offset_[at(i)] >= 0) return false;
      rest += items_[at(i)].size;
      supports += low_[at(i)] == floor_[at(s)] ? 1 : 0;
    }
    if (rest != rest_[at(s)] || supports != supports_[at(s)] || floor_[at(s)] < top_[at(s)]) return false;
    if (count_[at(s)] > 0 && supports == 0) return false;
  }
  return true;
}

/// True if an unplaced item fits below the floors of all its sections: a layout with the item there is as
/// good, and is found in another branch. Only checks gaps below floors that rose since `mark`.
bool Skyline::leaves_a_gap(std::size_t mark) const {
  const auto fits_below = [&](std::int32_t i) {
    const Item& item = items_[at(i)];
    std::int64_t top = 0, floor = kNever;
    for (std::int32_t s = item.first; s < item.end; ++s) {
      top = std::max(top, top_[at(s)]);
      floor = std::min(floor, floor_[at(s)]);
      if (top + item.size > floor) return false;
    }
    return true;
  };
  ++looks_;
  for (std::size_t k = mark; k < trail_.size(); ++k) {
    if (trail_[k].what != What::kFloor) continue;
    const std::int32_t s = trail_[k].at;
    const std::int64_t gap = floor_[at(s)] - top_[at(s)];
    if (gap == 0 || looked_at_[at(s)] == looks_) continue;
    looked_at_[at(s)] = looks_;
    for (std::int32_t i : waiting(s)) {
      if (items_[at(i)].size <= gap && fits_below(i)) return true;
    }
  }
  return false;
}

/// An item across a boundary between two sections starts where a sum of sizes of items that end there, on the
/// left, equals a sum of sizes of items that begin there, on the right, up to the waste that each section can
/// still afford.
///
///        left | right          k starts at 5 if x goes first, and at 7 at least if y does: from
///   7      ___|_ k              floors 5 and 3 and no waste, 5 + 0 = 3 + 2
///   5    _____| x
///   3         |_____
bool Skyline::settle_crossing(std::int32_t boundary, std::int64_t capacity) {
  const std::int64_t least = lowest_crossing(boundary, capacity);
  if (least <= std::max(floor_[at(boundary) - 1], floor_[at(boundary)])) return true;
  for (std::int32_t i : waiting(boundary)) {
    if (items_[at(i)].first == boundary || low_[at(i)] >= least) continue;
    if (least == kNever || least + items_[at(i)].size > capacity) return false;
    set_low(i, least);
  }
  work_ += count_[at(boundary)];
  return true;
}

/// Ascending sums of the items that end (or begin) at the boundary, from `base`; false if there are too many.
bool Skyline::sums(std::int32_t boundary, bool ending, std::int64_t base,
                   std::vector<std::int64_t>& into) const {
  constexpr int kMostItems = 6;
  into.assign(1, base);
  int taken = 0;
  for (std::int32_t i : waiting(ending ? boundary - 1 : boundary)) {
    const Item& item = items_[at(i)];
    if ((ending ? item.end : item.first) != boundary) continue;
    if (++taken > kMostItems) return false;
    const std::size_t before = into.size();
    for (std::size_t k = 0; k < before; ++k) into.push_back(into[k] + item.size);
    std::inplace_merge(into.begin(), into.begin() + narrow<std::ptrdiff_t>(before), into.end());
  }
  return true;
}

std::int64_t Skyline::lowest_crossing(std::int32_t boundary, std::int64_t capacity) const {
  const auto l = at(boundary - 1), r = at(boundary);
  const std::int64_t base = std::max(floor_[l], floor_[r]);
  const std::int64_t left_waste = capacity - floor_[l] - rest_[l];
  const std::int64_t right_waste = capacity - floor_[r] - rest_[r];
  if (count_[l] == 0 || count_[r] == 0 || left_waste < 0 || right_waste < 0) return base;
  if (floor_[l] + left_waste >= base && floor_[r] + right_waste >= base) return base;
  if (!sums(boundary, true, floor_[l], left_) || !sums(boundary, false, floor_[r], right_)) return base;
  for (std::size_t a = 0, b = 0; a < left_.size() && b < right_.size();) {
    const std::int64_t meet = std::max({left_[a], right_[b], base});
    if (meet > left_[a] + left_waste) {
      ++a;
    } else if (meet > right_[b] + right_waste) {
      ++b;
    } else {
      return meet;
    }
  }
  return kNever;
}

void Skyline::undo(std::size_t mark) {
  while (trail_.size() > mark) {
    const Change& change = trail_.back();
    switch (change.what) {
      case What::kFloor:
        floor_[at(change.at)] = change.before;
        supports_[at(change.at)] = change.supports;
        break;
      case What::kTop:
        top_[at(change.at)] = change.before;
        break;
      case What::kTopItem:
        top_item_[at(change.at)] = narrow<std::int32_t>(change.before);
        break;
      case What::kLow:
        undo_low(change.at, change.before);
        break;
      case What::kGone:
        put_back(change.at);
        break;
    }
    trail_.pop_back();
  }
  propagated_ = std::min(propagated_, mark);
}

}  // namespace remat::layout
