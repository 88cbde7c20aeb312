#include "plan/tracker_blocks.h"

#include <algorithm>

#include "base/numbers.h"
#include "plan/tracker_kernels.h"
#include "remat/check.h"

namespace remat {
namespace {

constexpr std::int32_t kFill = 40;   // of a fresh block
constexpr std::int32_t kMerge = 40;  // neighbours with at most this many steps together are merged
constexpr std::int64_t kNarrowCeiling = INT32_MAX - 1;
constexpr std::int64_t kWideCeiling = kMaxCount;
constexpr std::int64_t kHuge = std::int64_t{1} << 55;  // from here on the sum over a block may exceed 64 bits

/// Sums that may wrap around.
std::int64_t plus(std::int64_t a, std::int64_t b) {
  return static_cast<std::int64_t>(static_cast<std::uint64_t>(a) + static_cast<std::uint64_t>(b));
}
std::int64_t minus(std::int64_t a, std::int64_t b) {
  return static_cast<std::int64_t>(static_cast<std::uint64_t>(a) - static_cast<std::uint64_t>(b));
}

}  // namespace

std::int64_t StepBlocks::ceiling() const { return narrow_ ? kNarrowCeiling : kWideCeiling; }

void StepBlocks::assign(std::span<const std::int64_t> memory, bool in_32_bits, std::int64_t budget) {
  *this = StepBlocks();
  narrow_ = in_32_bits;
  budget_ = budget;
  size_ = std::ssize(memory);
  slot_.resize(memory.size(), kNowhere);
  for (std::size_t begin = 0; begin < memory.size(); begin += kFill) {
    const std::size_t end = std::min(memory.size(), begin + kFill);
    const std::size_t block = new_block();
    const std::size_t rank = ids_.size();
    ids_.push_back(block);
    rank_[block] = narrow<std::int32_t>(rank);
    count_.push_back(narrow<std::int32_t>(end - begin));
    max_.push_back(0);
    min_.push_back(0);
    added_.push_back(0);
    for (std::size_t i = begin; i < end; ++i) {
      const OccId occ(static_cast<std::int64_t>(i));
      slot_[occ] = static_cast<std::uint32_t>(block * kCapacity + (i - begin));
      occ_[slot_[occ]] = occ;
      store(rank, narrow<std::int32_t>(i - begin), memory[i]);
    }
    refresh_bounds(rank);
  }
}

std::int64_t StepBlocks::load(std::size_t rank, std::int32_t index) const {
  const std::size_t at = ids_[rank] * kCapacity + narrow<std::size_t>(index);
  return narrow_ ? static_cast<std::int32_t>(static_cast<std::uint32_t>(cells32_[at]) +
                                             static_cast<std::uint32_t>(added_[rank]))
                 : plus(cells64_[at], added_[rank]);
}

void StepBlocks::store(std::size_t rank, std::int32_t index, std::int64_t memory) {
  const std::size_t at = ids_[rank] * kCapacity + narrow<std::size_t>(index);
  if (narrow_) {
    cells32_[at] = static_cast<std::int32_t>(static_cast<std::uint32_t>(memory) -
                                             static_cast<std::uint32_t>(added_[rank]));
  } else {
    cells64_[at] = minus(memory, added_[rank]);
  }
}

OccId StepBlocks::next(OccId occ) const {
  const std::uint32_t slot = slot_[occ];
  auto rank = narrow<std::size_t>(rank_[slot / kCapacity]);
  if (narrow<std::int32_t>(slot % kCapacity) + 1 < count_[rank]) return occ_[slot + 1];
  do ++rank;
  while (rank < ids_.size() && count_[rank] == 0);
  return rank == ids_.size() ? OccId::none() : occ_[ids_[rank] * kCapacity];
}

OccId StepBlocks::prev(OccId occ) const {
  const std::uint32_t slot = slot_[occ];
  if (slot % kCapacity > 0) return occ_[slot - 1];
  auto rank = narrow<std::size_t>(rank_[slot / kCapacity]);
  while (rank > 0) {
    --rank;
    if (count_[rank] > 0) return occ_[ids_[rank] * kCapacity + narrow<std::size_t>(count_[rank] - 1)];
  }
  return OccId::none();
}

OccId StepBlocks::at_or_after(Key key) const {
  auto rank = narrow<std::size_t>(key / kCapacity);
  std::int32_t index = key % kCapacity;
  while (index >= count_[rank]) {
    if (rank + 1 == ids_.size()) {
      while (count_[rank] == 0) --rank;
      index = count_[rank] - 1;
      break;
    }
    ++rank;
    index = 0;
  }
  return occ_[ids_[rank] * kCapacity + narrow<std::size_t>(index)];
}

std::int64_t StepBlocks::memory(OccId occ) const {
  return load(rank_of(occ), narrow<std::int32_t>(slot_[occ] % kCapacity));
}

OccId StepBlocks::random(Random& random) const {
  for (;;) {
    const auto at = random.below(std::ssize(ids_) * kCapacity);
    const auto rank = narrow<std::size_t>(at / kCapacity);
    const auto index = narrow<std::int32_t>(at % kCapacity);
    if (index < count_[rank]) return occ_[ids_[rank] * kCapacity + narrow<std::size_t>(index)];
  }
}

OccId StepBlocks::random_over(std::size_t rank, Random& random) const {
  const std::int32_t n = count_[rank];
  if (n == 0) return OccId::none();
  const auto start = narrow<std::int32_t>(random.below(n));
  for (std::int32_t i = 0; i < n; ++i) {
    const std::int32_t index = start + i < n ? start + i : start + i - n;
    if (load(rank, index) > budget_) return occ_[ids_[rank] * kCapacity + narrow<std::size_t>(index)];
  }
  return OccId::none();
}

std::size_t StepBlocks::new_block() {
  if (!unused_.empty()) {
    const std::size_t block = unused_.back();
    unused_.pop_back();
    return block;
  }
  const std::size_t block = rank_.size();
  rank_.push_back(0);
  occ_.resize(occ_.size() + kCapacity);
  if (narrow_) {
    cells32_.resize(cells32_.size() + kCapacity);
  } else {
    cells64_.resize(cells64_.size() + kCapacity);
  }
  return block;
}

void StepBlocks::renumber(std::size_t from_rank) {
  for (std::size_t r = from_rank; r < ids_.size(); ++r) rank_[ids_[r]] = narrow<std::int32_t>(r);
}

void StepBlocks::refresh_bounds(std::size_t rank) {
  if (count_[rank] == 0) {
    max_[rank] = min_[rank] = 0;
    return;
  }
  const std::size_t at = ids_[rank] * kCapacity;
  const kernels::Range r = narrow_ ? kernels::range(&cells32_[at], count_[rank], added_[rank])
                                   : kernels::range(&cells64_[at], count_[rank], added_[rank]);
  max_[rank] = r.max;
  min_[rank] = r.min;
}

/// Moves cells and occurrences between or inside blocks and corrects the slots; ranges may overlap.
void StepBlocks::move_cells(std::size_t from_block, std::int32_t from, std::size_t to_block, std::int32_t to,
                            std::int32_t count) {
  const auto a = static_cast<std::ptrdiff_t>(from_block * kCapacity) + from;
  const auto b = static_cast<std::ptrdiff_t>(to_block * kCapacity) + to;
  const auto shift = [&](auto& column) {
    if (a < b) {
      std::copy_backward(column.begin() + a, column.begin() + a + count, column.begin() + b + count);
    } else {
      std::copy(column.begin() + a, column.begin() + a + count, column.begin() + b);
    }
  };
  shift(occ_);
  if (narrow_) {
    shift(cells32_);
  } else {
    shift(cells64_);
  }
  for (std::ptrdiff_t i = b; i < b + count; ++i) slot_[occ_[at(i)]] = static_cast<std::uint32_t>(i);
}

void StepBlocks::split(std::size_t rank) {
  const std::size_t block = new_block();
  const std::int32_t half = count_[rank] / 2;
  const auto at = static_cast<std::ptrdiff_t>(rank) + 1;
  ids_.insert(ids_.begin() + at, block);
  count_.insert(count_.begin() + at, count_[rank] - half);
  added_.insert(added_.begin() + at, added_[rank]);
  max_.insert(max_.begin() + at, 0);
  min_.insert(min_.begin() + at, 0);
  count_[rank] = half;
  renumber(rank + 1);
  move_cells(ids_[rank], half, block, 0, count_[rank + 1]);
  refresh_bounds(rank);
  refresh_bounds(rank + 1);
}

void StepBlocks::drop(std::size_t rank) {
  unused_.push_back(ids_[rank]);
  const auto at = static_cast<std::ptrdiff_t>(rank);
  ids_.erase(ids_.begin() + at);
  count_.erase(count_.begin() + at);
  added_.erase(added_.begin() + at);
  max_.erase(max_.begin() + at);
  min_.erase(min_.begin() + at);
  renumber(rank);
}

void StepBlocks::merge_into(std::size_t rank, std::size_t next_rank) {
  const std::int32_t n = count_[rank];
  for (std::int32_t i = 0; i < count_[next_rank]; ++i) {
    const std::int64_t memory = load(next_rank, i);
    const OccId occ = occ_[ids_[next_rank] * kCapacity + narrow<std::size_t>(i)];
    const std::size_t slot = ids_[rank] * kCapacity + narrow<std::size_t>(n + i);
    occ_[slot] = occ;
    slot_[occ] = static_cast<std::uint32_t>(slot);
    store(rank, n + i, memory);
  }
  count_[rank] += count_[next_rank];
  drop(next_rank);
  refresh_bounds(rank);
}

void StepBlocks::tidy(std::size_t rank) {
  if (ids_.size() == 1) return;
  if (count_[rank] == 0) {
    drop(rank);
  } else if (rank + 1 < ids_.size() && count_[rank] + count_[rank + 1] <= kMerge) {
    merge_into(rank, rank + 1);
  } else if (rank > 0 && count_[rank - 1] + count_[rank] <= kMerge) {
    merge_into(rank - 1, rank);
  }
}

void StepBlocks::insert_before(OccId occ, OccId next, std::int64_t memory) {
  REMAT_ASSERT(!contains(occ) && contains(next), occ, next);
  std::size_t rank = rank_of(next);
  if (count_[rank] == kCapacity) {
    split(rank);
    rank = rank_of(next);
  }
  const auto index = narrow<std::int32_t>(slot_[next] % kCapacity);
  const std::size_t block = ids_[rank];
  move_cells(block, index, block, index + 1, count_[rank] - index);
  const std::size_t slot = block * kCapacity + narrow<std::size_t>(index);
  occ_[slot] = occ;
  slot_[occ] = static_cast<std::uint32_t>(slot);
  store(rank, index, memory);
  ++count_[rank];
  ++size_;
  max_[rank] = std::max(max_[rank], memory);
  min_[rank] = std::min(min_[rank], memory);
}

std::int64_t StepBlocks::erase(OccId occ) {
  REMAT_ASSERT(contains(occ), occ);
  const std::size_t rank = rank_of(occ);
  const auto index = narrow<std::int32_t>(slot_[occ] % kCapacity);
  const std::int64_t memory = load(rank, index);
  slot_[occ] = kNowhere;
  move_cells(ids_[rank], index + 1, ids_[rank], index, count_[rank] - index - 1);
  --count_[rank];
  --size_;
  if (memory == max_[rank] || memory == min_[rank]) refresh_bounds(rank);
  return memory;
}

Wide StepBlocks::scan_huge(std::size_t rank, std::int32_t from, std::int32_t to, std::int64_t delta) const {
  Wide sum = 0;
  for (std::int32_t i = from; i < to; ++i) {
    const Wide over = Wide{load(rank, i)} - budget_;
    sum += std::max<Wide>(over + delta, 0) - std::max<Wide>(over, 0);
  }
  return sum;
}

Wide StepBlocks::scan(std::size_t rank, std::int32_t from, std::int32_t to, std::int64_t delta) const {
  if (from >= to) return 0;
  if (std::max(max_[rank], std::abs(delta)) >= kHuge) return scan_huge(rank, from, to, delta);
  if (max_[rank] + std::max<std::int64_t>(delta, 0) <= budget_) return 0;
  if (min_[rank] + std::min<std::int64_t>(delta, 0) >= budget_) {
    return max_[rank] + delta > ceiling() ? kNever : delta * (to - from);
  }
  if (max_[rank] + delta > ceiling()) return kNever;
  const std::size_t at = ids_[rank] * kCapacity + narrow<std::size_t>(from);
  const std::int64_t change =
      narrow_ ? kernels::excess_change(&cells32_[at], to - from, added_[rank], budget_, delta)
              : kernels::excess_change(&cells64_[at], to - from, added_[rank], budget_, delta);
  REMAT_ASSERT_HEAVY(change == scan_huge(rank, from, to, delta), change, rank, from, to, delta);
  return change;
}

Wide StepBlocks::excess_change(Key lo, Key hi, std::int64_t delta) const {
  REMAT_ASSERT(lo <= hi, lo, hi);
  auto rank = narrow<std::size_t>(lo / kCapacity);
  const auto last = narrow<std::size_t>(hi / kCapacity);
  const std::int32_t from = lo % kCapacity + 1;
  const std::int32_t to = hi % kCapacity + 1;
  if (rank == last) return scan(rank, from, to, delta);
  Wide sum = scan(rank, from, count_[rank], delta);
  // Most blocks of a long range stay within the budget: one comparison each.
  const std::int64_t untouched = budget_ - std::max<std::int64_t>(delta, 0);
  for (++rank; rank < last; ++rank) {
    if (max_[rank] > untouched) sum += scan(rank, 0, count_[rank], delta);
  }
  return sum + scan(last, 0, to, delta);
}

void StepBlocks::add_part(std::size_t rank, std::int32_t from, std::int32_t to, std::int64_t delta) {
  if (from >= to) return;
  const std::size_t at = ids_[rank] * kCapacity;
  if (narrow_) {
    for (std::int32_t i = from; i < to; ++i) {
      std::int32_t& cell = cells32_[at + narrow<std::size_t>(i)];
      cell = static_cast<std::int32_t>(static_cast<std::uint32_t>(cell) + static_cast<std::uint32_t>(delta));
    }
  } else {
    for (std::int32_t i = from; i < to; ++i) {
      std::int64_t& cell = cells64_[at + narrow<std::size_t>(i)];
      cell = plus(cell, delta);
    }
  }
  refresh_bounds(rank);
}

void StepBlocks::add(Key lo, Key hi, std::int64_t delta) {
  REMAT_ASSERT(lo <= hi, lo, hi);
  auto rank = narrow<std::size_t>(lo / kCapacity);
  const auto last = narrow<std::size_t>(hi / kCapacity);
  const std::int32_t from = lo % kCapacity + 1;
  const std::int32_t to = hi % kCapacity + 1;
  if (rank == last) return add_part(rank, from, to, delta);
  add_part(rank, from, count_[rank], delta);
  for (++rank; rank < last; ++rank) {
    added_[rank] = plus(added_[rank], delta);
    max_[rank] += delta;
    min_[rank] += delta;
  }
  add_part(last, 0, to, delta);
}

Wide StepBlocks::total_excess() const {
  Wide sum = 0;
  for (std::size_t r = 0; r < ids_.size(); ++r) {
    if (max_[r] <= budget_) continue;
    for (std::int32_t i = 0; i < count_[r]; ++i) sum += excess(load(r, i));
  }
  return sum;
}

std::int64_t StepBlocks::peak() const {
  std::int64_t peak = 0;
  for (std::size_t r = 0; r < ids_.size(); ++r) {
    if (max_[r] <= peak) continue;
    for (std::int32_t i = 0; i < count_[r]; ++i) peak = std::max(peak, load(r, i));
  }
  return peak;
}

bool StepBlocks::consistent() const {
  std::int64_t steps = 0;
  for (std::size_t r = 0; r < ids_.size(); ++r) {
    if (rank_[ids_[r]] != narrow<std::int32_t>(r) || count_[r] < 0 || count_[r] > kCapacity) return false;
    for (std::int32_t i = 0; i < count_[r]; ++i) {
      const std::size_t slot = ids_[r] * kCapacity + narrow<std::size_t>(i);
      if (slot_[occ_[slot]] != slot || load(r, i) > max_[r] || load(r, i) < min_[r]) return false;
    }
    steps += count_[r];
  }
  return steps == size_;
}

}  // namespace remat
