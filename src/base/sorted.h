// Sorted lists without repetitions.
#pragma once

#include <algorithm>

namespace remat {

/// Sorts and leaves one of each.
template <class List>
void sort_unique(List& list) {
  std::sort(list.begin(), list.end());
  list.erase(std::unique(list.begin(), list.end()), list.end());
}

}  // namespace remat
