// Kahn's algorithm.
#pragma once

#include <cstdint>
#include <functional>
#include <queue>
#include <type_traits>
#include <utility>
#include <vector>

#include "base/numbers.h"

namespace remat {

/// Nodes 0, 1, ... so that each comes before those in its row of `after`; of those that may be next, the one
/// of the smallest key, then number. Nodes on cycles, and those after them, are left out. O(edges + n log n).
template <class Key>
std::vector<std::int32_t> topological_order(const std::vector<std::vector<std::int32_t>>& after, Key key) {
  std::vector<std::int32_t> waits(after.size(), 0), order;
  for (const auto& row : after) {
    for (std::int32_t to : row) ++waits[at(to)];
  }
  using Entry = std::pair<std::decay_t<decltype(key(0))>, std::int32_t>;
  std::priority_queue<Entry, std::vector<Entry>, std::greater<>> ready;
  for (int node : indices(after)) {
    if (waits[at(node)] == 0) ready.emplace(key(node), node);
  }
  while (!ready.empty()) {
    const std::int32_t node = order.emplace_back(ready.top().second);
    ready.pop();
    for (std::int32_t to : after[at(node)]) {
      if (--waits[at(to)] == 0) ready.emplace(key(to), to);
    }
  }
  return order;
}

}  // namespace remat
