// Which items live at the same time.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/numbers.h"
#include "layout/sections.h"

namespace remat::layout {

/// The items beside each item, those that share a section with it. Memory and time of O(n log n + pairs).
class Neighbours {
 public:
  explicit Neighbours(const Packing& packing);

  /// How many pairs of items live at the same time.
  static std::int64_t pairs(const Packing& packing);
  /// Pairs that fit into half a GB and can be visited in a second or two.
  static constexpr std::int64_t kMostPairs = 50'000'000;

  std::span<const std::int32_t> of(std::int32_t i) const {
    return std::span(beside_).subspan(row_[at(i)], row_[at(i) + 1] - row_[at(i)]);
  }
  /// Two for each pair.
  std::int64_t size() const { return narrow<std::int64_t>(beside_.size()); }

 private:
  // beside_[row_[i], row_[i + 1]): the items beside item i.
  std::vector<std::size_t> row_;
  std::vector<std::int32_t> beside_;
};

}  // namespace remat::layout
