#include "layout/first_fit.h"

#include <algorithm>
#include <limits>
#include <map>
#include <numeric>
#include <queue>
#include <tuple>
#include <utility>

#include "base/numbers.h"
#include "remat/check.h"

namespace remat::layout {
namespace {

/// Placed items, by offset.
class Placed {
 public:
  explicit Placed(std::size_t n) {
    offset_.reserve(n);
    end_.reserve(n);
    life_.reserve(n);
  }
  std::int64_t lowest(const Item& item) const {
    std::int64_t free = 0;
    for (std::size_t k = 0; k < offset_.size(); ++k) {
      if (life_[k].first >= item.end || life_[k].second <= item.first) continue;
      if (offset_[k] - free >= item.size) break;
      free = std::max(free, end_[k]);
    }
    return free;
  }
  void insert(const Item& item, std::int64_t offset) {
    const auto k = std::upper_bound(offset_.begin(), offset_.end(), offset) - offset_.begin();
    offset_.insert(offset_.begin() + k, offset);
    end_.insert(end_.begin() + k, offset + item.size);
    life_.insert(life_.begin() + k, {item.first, item.end});
  }

 private:
  std::vector<std::int64_t> offset_, end_;
  std::vector<std::pair<std::int32_t, std::int32_t>> life_;
};

/// The gaps of an unlimited arena, disjoint and not adjacent, by offset.
class Gaps {
 public:
  Gaps() { gaps_.emplace(0, kEnd); }
  std::int64_t take_low(std::int64_t size) {
    for (auto gap = gaps_.begin();; ++gap) {
      if (gap->second - gap->first >= size) return take(gap, gap->first, size);
    }
  }
  /// The highest place below `ceiling`, or else the lowest.
  std::int64_t take_high(std::int64_t size, std::int64_t ceiling) {
    for (auto gap = gaps_.lower_bound(ceiling); gap != gaps_.begin();) {
      --gap;
      const std::int64_t end = std::min(gap->second, ceiling);
      if (end - gap->first >= size) return take(gap, end - size, size);
    }
    return take_low(size);
  }
  void give_back(std::int64_t offset, std::int64_t size) {
    std::int64_t end = offset + size;
    auto next = gaps_.lower_bound(offset);
    if (next != gaps_.end() && next->first == end) {
      end = next->second;
      next = gaps_.erase(next);
    }
    if (next != gaps_.begin() && std::prev(next)->second == offset) {
      std::prev(next)->second = end;
    } else {
      gaps_.emplace_hint(next, offset, end);
    }
  }

 private:
  static constexpr std::int64_t kEnd = std::numeric_limits<std::int64_t>::max();
  using Map = std::map<std::int64_t, std::int64_t>;

  std::int64_t take(Map::iterator gap, std::int64_t offset, std::int64_t size) {
    const std::int64_t end = gap->second;
    if (gap->first == offset) {
      gap = gaps_.erase(gap);
    } else {
      gap->second = offset;
      ++gap;
    }
    if (offset + size < end) gaps_.emplace_hint(gap, offset + size, end);
    return offset;
  }
  Map gaps_;
};

using Sequence = std::vector<std::int32_t>;

template <class Key>
Sequence sorted_by(const Packing& packing, Key&& key) {
  Sequence sequence(packing.items.size());
  std::iota(sequence.begin(), sequence.end(), 0);
  std::stable_sort(sequence.begin(), sequence.end(), [&](std::int32_t a, std::int32_t b) {
    return key(packing.items[at(a)]) > key(packing.items[at(b)]);
  });
  return sequence;
}

std::int32_t length(const Item& item) { return item.end - item.first; }

Sequence sequence_of_kind(const Packing& packing, int kind) {
  switch (kind) {
    case 0:
      return sorted_by(
          packing, [](const Item& i) { return std::pair<std::int64_t, std::int64_t>(length(i), i.size); });
    case 1:
      return sorted_by(
          packing, [](const Item& i) { return std::pair<std::int64_t, std::int64_t>(i.size, length(i)); });
    case 2:
      return sorted_by(packing, [](const Item& i) { return std::pair(Wide{i.size} * length(i), i.size); });
    case 3:
      return sorted_by(packing, [](const Item& i) { return std::tuple(-i.first, length(i), i.size); });
    default:
      return sorted_by(packing, [](const Item& i) { return std::tuple(i.end, length(i), i.size); });
  }
}
constexpr int kKinds = 5;

/// Lengths of live ranges that all, one in two, one in four, ... of the items exceed.
std::vector<std::int32_t> long_lives(const Packing& packing) {
  std::vector<std::int32_t> lengths;
  for (const Item& item : packing.items) lengths.push_back(length(item));
  std::sort(lengths.begin(), lengths.end());
  std::vector<std::int32_t> lives{0};
  for (std::size_t rest = lengths.size() / 2; rest > 0; rest /= 2) {
    const std::int32_t life = lengths[lengths.size() - rest - 1];
    if (life != lives.back()) lives.push_back(life);
  }
  return lives;
}

}  // namespace

bool is_packing(const Packing& packing, const Packed& packed) {
  LayoutProblem problem;
  for (const Item& item : packing.items) problem.buffers.push_back({item.first, item.end, Bytes(item.size)});
  std::vector<Bytes> offsets;
  for (std::int64_t offset : packed.offsets) offsets.emplace_back(offset);
  return !validate_layout(problem, offsets, Bytes(packed.height)) &&
         arena_of(problem, offsets) == Bytes(packed.height);
}

Packed first_fit(const Packing& packing, std::span<const std::int32_t> sequence) {
  Packed packed{std::vector<std::int64_t>(packing.items.size(), 0), 0};
  Placed placed(sequence.size());
  for (std::int32_t i : sequence) {
    const Item& item = packing.items[at(i)];
    const std::int64_t offset = placed.lowest(item);
    placed.insert(item, offset);
    packed.offsets[at(i)] = offset;
    packed.height = std::max(packed.height, offset + item.size);
  }
  REMAT_ASSERT_HEAVY(sequence.size() < packing.items.size() || is_packing(packing, packed), packed.height);
  return packed;
}

Packed first_fit(const Packing& packing, std::span<const std::int32_t> sequence,
                 const Neighbours* neighbours) {
  if (!neighbours) return first_fit(packing, sequence);
  Packed packed{std::vector<std::int64_t>(packing.items.size(), -1), 0};
  std::vector<std::pair<std::int64_t, std::int64_t>> beside;
  for (std::int32_t i : sequence) {
    const std::int64_t size = packing.items[at(i)].size;
    beside.clear();
    for (std::int32_t j : neighbours->of(i)) {
      const std::int64_t offset = packed.offsets[at(j)];
      if (offset >= 0) beside.emplace_back(offset, offset + packing.items[at(j)].size);
    }
    std::sort(beside.begin(), beside.end());
    std::int64_t free = 0;
    for (const auto& [offset, end] : beside) {
      if (offset - free >= size) break;
      free = std::max(free, end);
    }
    packed.offsets[at(i)] = free;
    packed.height = std::max(packed.height, free + size);
  }
  REMAT_ASSERT_HEAVY(sequence.size() < packing.items.size() || is_packing(packing, packed), packed.height);
  return packed;
}

std::int64_t first_fit_units(const Packing& packing, const Neighbours* neighbours) {
  if (neighbours) return neighbours->size() / 4;
  return narrow<std::int64_t>(packing.items.size() * packing.items.size() / 64);
}

Packed sweep_fit(const Packing& packing, const Sweep& sweep) {
  const auto start = [&](const Item& item) { return sweep.backward ? -item.end : item.first; };
  const auto stop = [&](const Item& item) { return sweep.backward ? -item.first : item.end; };
  Sequence sequence(packing.items.size());
  std::iota(sequence.begin(), sequence.end(), 0);
  // Of items that begin at one time: long live ranges first, then large sizes.
  std::sort(sequence.begin(), sequence.end(), [&](std::int32_t a, std::int32_t b) {
    const Item &x = packing.items[at(a)], &y = packing.items[at(b)];
    return std::tuple(start(x), -length(x), -x.size, a) < std::tuple(start(y), -length(y), -y.size, b);
  });
  using Stop = std::pair<std::int32_t, std::int32_t>;
  std::priority_queue<Stop, std::vector<Stop>, std::greater<>> living;
  Packed packed{std::vector<std::int64_t>(packing.items.size(), 0), 0};
  Gaps gaps;
  for (std::int32_t i : sequence) {
    const Item& item = packing.items[at(i)];
    for (; !living.empty() && living.top().first <= start(item); living.pop()) {
      const std::int32_t gone = living.top().second;
      gaps.give_back(packed.offsets[at(gone)], packing.items[at(gone)].size);
    }
    const bool is_long = length(item) > sweep.long_life;
    const std::int64_t offset = is_long ? gaps.take_low(item.size) : gaps.take_high(item.size, sweep.ceiling);
    packed.offsets[at(i)] = offset;
    packed.height = std::max(packed.height, offset + item.size);
    living.push({stop(item), i});
  }
  REMAT_ASSERT_HEAVY(is_packing(packing, packed), packed.height, sweep.backward, sweep.long_life);
  return packed;
}

Packed best_sweep(const Packing& packing, std::int64_t goal, Limits& limits) {
  const auto n = narrow<std::int64_t>(packing.items.size());
  const std::int64_t peak =
      packing.load.empty() ? 0 : *std::max_element(packing.load.begin(), packing.load.end());
  Packed best;
  for (std::int32_t long_life : long_lives(packing)) {
    for (bool backward : {false, true}) {
      Packed packed = sweep_fit(packing, {backward, long_life, peak});
      if (best.offsets.empty() || packed.height < best.height) best = std::move(packed);
      if (limits.spend(n + 1) || best.height <= goal) return best;
    }
  }
  return best;
}

void lower_by_sequences(const Packing& packing, std::int64_t goal, const Neighbours* neighbours,
                        Limits& limits, Packed& best) {
  for (int kind = 0; kind < kKinds && best.height > goal && !limits.reached(); ++kind) {
    Packed packed = first_fit(packing, sequence_of_kind(packing, kind), neighbours);
    if (packed.height < best.height) best = std::move(packed);
    limits.spend(first_fit_units(packing, neighbours) + 1);
  }
}

}  // namespace remat::layout
