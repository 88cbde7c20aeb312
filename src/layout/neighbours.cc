#include "layout/neighbours.h"

#include <algorithm>
#include <numeric>

namespace remat::layout {
namespace {

/// Calls see(i, j) for each pair alive at the same time.
template <class See>
void each_pair(const Packing& packing, See&& see) {
  std::vector<std::int32_t> by_start(packing.items.size()), living;
  std::iota(by_start.begin(), by_start.end(), 0);
  std::stable_sort(by_start.begin(), by_start.end(), [&](std::int32_t a, std::int32_t b) {
    return packing.items[at(a)].first < packing.items[at(b)].first;
  });
  for (std::int32_t i : by_start) {
    const std::int32_t now = packing.items[at(i)].first;
    std::erase_if(living, [&](std::int32_t j) { return packing.items[at(j)].end <= now; });
    for (std::int32_t j : living) see(i, j);
    living.push_back(i);
  }
}

}  // namespace

std::int64_t Neighbours::pairs(const Packing& packing) {
  // Items alive when an item begins either began before, or begin with it and come earlier.
  std::vector<std::int64_t> change(packing.load.size() + 1, 0), begin(packing.load.size(), 0);
  for (const Item& item : packing.items) {
    ++change[at(item.first)];
    --change[at(item.end)];
    ++begin[at(item.first)];
  }
  std::int64_t living = 0, sum = 0;
  for (std::size_t s = 0; s < begin.size(); ++s) {
    living += change[s];
    sum += begin[s] * (living - begin[s]) + begin[s] * (begin[s] - 1) / 2;
  }
  return sum;
}

Neighbours::Neighbours(const Packing& packing) {
  const std::size_t n = packing.items.size();
  row_.assign(n + 1, 0);
  each_pair(packing, [&](std::int32_t i, std::int32_t j) {
    ++row_[at(i) + 1];
    ++row_[at(j) + 1];
  });
  for (std::size_t i = 0; i < n; ++i) row_[i + 1] += row_[i];
  std::vector<std::size_t> next(row_.begin(), row_.end() - 1);
  beside_.resize(row_.back());
  each_pair(packing, [&](std::int32_t i, std::int32_t j) {
    beside_[next[at(i)]++] = j;
    beside_[next[at(j)]++] = i;
  });
}

}  // namespace remat::layout
