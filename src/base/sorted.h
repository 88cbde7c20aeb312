// Sorted lists without repetitions.
#pragma once

#include <algorithm>
#include <functional>

namespace remat {

/// Sorts and removes duplicates. Most lists are sorted already.
template <class List>
void sort_unique(List& list) {
  if (std::adjacent_find(list.begin(), list.end(), std::greater_equal<>()) == list.end()) return;
  std::sort(list.begin(), list.end());
  list.erase(std::unique(list.begin(), list.end()), list.end());
}

}  // namespace remat
