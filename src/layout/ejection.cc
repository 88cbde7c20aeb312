// Tried and lost: other weights (none, sizes, sizes by penalties); the largest, the heaviest or the last item
// first instead of any; accepting by temperature instead of penalties (simulated annealing, 1 to 2 points
// worse on `random_layered_n500`); continuing from a failed layout instead of the best one.
#include "layout/ejection.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "base/numbers.h"
#include "remat/check.h"

namespace remat::layout {
namespace {

constexpr std::int64_t kStays = std::int64_t{1} << 50;  ///< outweighs everything else
constexpr std::int64_t kLargestArea = 100'000;
constexpr std::int64_t kFirstEffort = 30;  ///< units an item
constexpr std::int64_t kFirstPart = 2, kLastPart = 64;

}  // namespace

EjectionSearch::EjectionSearch(const Packing& packing, std::shared_ptr<const Neighbours> neighbours,
                               std::uint64_t seed)
    : packing_(&packing), random_(seed), neighbours_(std::move(neighbours)) {
  const std::size_t n = packing.items.size();
  const auto area = [](const Item& item) { return Wide{item.size} * (item.end - item.first); };
  Wide most = 1;
  for (const Item& item : packing.items) most = std::max(most, area(item));
  for (const Item& item : packing.items) {
    // Not area * kLargestArea, which may be above 2^127.
    const int shift = most >> 100 > 0 ? 27 : 0;
    area_.push_back(1 + capped((area(item) >> shift) * kLargestArea / (most >> shift)));
  }
  penalty_.assign(n, 1);
  stays_.assign(n, 0);
  effort_ = kFirstEffort * narrow<std::int64_t>(n);
}

std::int64_t EjectionSearch::weight(std::int32_t i) const {
  return penalty_[at(i)] * area_[at(i)] + (stays_[at(i)] > step_ ? kStays : 0);
}

/// The offset at which the items in the way have the least weight; of equal ones the lowest.
std::int64_t EjectionSearch::cheapest_place(std::int32_t i, std::int64_t capacity) {
  const std::int64_t size = packing_->items[at(i)].size, highest = capacity - size;
  events_.assign({{0, 0}, {highest, 0}});
  std::int64_t sum = 0;
  for (std::int32_t j : neighbours_->of(i)) {
    if (offset_[at(j)] < 0) continue;
    if (offset_[at(j)] < size) {
      sum += weight(j);
    } else {
      events_.push_back({offset_[at(j)] - size, weight(j)});
    }
    if (end(j) <= highest) events_.push_back({end(j), -weight(j)});
  }
  work_ += narrow<std::int64_t>(neighbours_->of(i).size()) / 4;
  work_ += 3 * narrow<std::int64_t>(events_.size());
  std::sort(events_.begin(), events_.end(),
            [](const Event& a, const Event& b) { return a.at != b.at ? a.at < b.at : a.change < b.change; });
  std::int64_t best = -1, least = 0, equal = 0;
  for (auto event = events_.begin(); event != events_.end() && event->at <= highest;) {
    const std::int64_t here = event->at;
    for (; event != events_.end() && event->at == here && event->change <= 0; ++event) sum += event->change;
    if (best < 0 || sum < least) {
      best = here;
      least = sum;
      equal = 1;
      if (sum == 0) break;
    } else if (sum == least && random_.below(++equal) == 0) {
      best = here;
    }
    // Weight just above this offset.
    for (; event != events_.end() && event->at == here; ++event) sum += event->change;
  }
  return best;
}

void EjectionSearch::put(std::int32_t i, std::int64_t offset) {
  constexpr std::int64_t kLeastStay = 10;
  offset_[at(i)] = offset;
  bool was_free = true;
  for (std::int32_t j : neighbours_->of(i)) {
    if (offset_[at(j)] < 0 || offset_[at(j)] >= end(i) || end(j) <= offset) continue;
    offset_[at(j)] = -1;
    out_.push_back(j);
    was_free = false;
  }
  if (was_free) return;
  ++penalty_[at(i)];
  stays_[at(i)] = step_ + 1 + random_.below(kLeastStay + narrow<std::int64_t>(out_.size()));
}

void EjectionSearch::take_out_above(std::int64_t capacity) {
  out_.clear();
  for (std::size_t i = 0; i < offset_.size(); ++i) {
    if (offset_[i] + packing_->items[i].size <= capacity) continue;
    offset_[i] = -1;
    out_.push_back(narrow<std::int32_t>(i));
  }
}

/// True if all removed items found a place below the capacity.
bool EjectionSearch::settle(std::int64_t capacity, std::int64_t units, Limits& limits) {
  for (std::int64_t spent = 0; !out_.empty();) {
    ++step_;
    std::swap(out_[at(random_.below(narrow<std::int64_t>(out_.size())))], out_.back());
    const std::int32_t i = out_.back();
    out_.pop_back();
    const std::int64_t before = work_;
    put(i, cheapest_place(i, capacity));
    const std::int64_t step_units = (work_ - before) / 32 + 1;
    spent += step_units;
    if (limits.spend(step_units) || spent > units) break;
  }
  return out_.empty();
}

void EjectionSearch::lower(Packed& packed, std::int64_t goal, std::int64_t units, Limits& limits) {
  const std::int64_t first_work = limits.work();
  std::vector<std::int32_t> upward(packing_->items.size());
  const Neighbours* known = std::ssize(upward) > kMostQuadratic ? neighbours_.get() : nullptr;
  while (packed.height > goal && !limits.reached()) {
    const std::int64_t left = units - (limits.work() - first_work);
    if (left <= 0) return;
    const std::int64_t capacity = packed.height - std::max<std::int64_t>(1, (packed.height - goal) / part_);
    offset_ = packed.offsets;
    take_out_above(capacity);
    if (settle(capacity, std::min(left, effort_), limits)) {
      // Moves all items down as far as possible.
      std::iota(upward.begin(), upward.end(), 0);
      std::stable_sort(upward.begin(), upward.end(),
                       [&](std::int32_t a, std::int32_t b) { return offset_[at(a)] < offset_[at(b)]; });
      const std::int64_t before = packed.height;
      packed = first_fit(*packing_, upward, known);
      REMAT_ASSERT(packed.height <= capacity && packed.height < before, packed.height, capacity, before);
      limits.spend(first_fit_units(*packing_, known));
      part_ = std::max<std::int64_t>(1, part_ / 2);
    } else if (part_ < kLastPart) {
      part_ *= 2;
    } else {
      part_ = kFirstPart;
      effort_ *= 2;
    }
  }
}

/// Of two overlapping items, removes the one with the higher offset.
void EjectionSearch::take_out_overlaps() {
  std::vector<std::int32_t> upward;
  for (std::size_t i = 0; i < offset_.size(); ++i) {
    if (offset_[i] >= 0) upward.push_back(narrow<std::int32_t>(i));
  }
  std::stable_sort(upward.begin(), upward.end(),
                   [&](std::int32_t a, std::int32_t b) { return offset_[at(a)] < offset_[at(b)]; });
  std::vector<std::int64_t> top(packing_->load.size(), 0);
  for (std::int32_t i : upward) {
    const Item& item = packing_->items[at(i)];
    const auto first = top.begin() + item.first, last = top.begin() + item.end;
    work_ += item.end - item.first;
    if (*std::max_element(first, last) > offset_[at(i)]) {
      offset_[at(i)] = -1;
      out_.push_back(i);
    } else {
      std::fill(first, last, end(i));
    }
  }
}

std::int64_t EjectionSearch::most_out() const {
  std::vector<std::int64_t> change(packing_->load.size() + 1, 0);
  for (std::int32_t i : out_) {
    const Item& item = packing_->items[at(i)];
    change[at(item.first)] += item.size;
    change[at(item.end)] -= item.size;
  }
  std::int64_t sum = 0, most = 0;
  for (std::int64_t one : change) most = std::max(most, sum += one);
  return most;
}

std::int64_t EjectionSearch::fit(std::vector<std::int64_t>& offsets, std::int64_t capacity,
                                 std::int64_t units, Limits& limits) {
  offset_ = offsets;
  for (std::size_t i = 0; i < offset_.size(); ++i) {
    if (packing_->items[i].size > capacity) return packing_->items[i].size;
  }
  take_out_above(capacity);
  for (std::size_t i = 0; i < offset_.size(); ++i) {
    if (offsets[i] < 0) out_.push_back(narrow<std::int32_t>(i));
  }
  const std::int64_t before = work_;
  take_out_overlaps();
  limits.spend((work_ - before) / 32 + 1);
  settle(capacity, units, limits);
  offsets = offset_;
  return most_out();
}

}  // namespace remat::layout
