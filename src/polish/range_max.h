// Maximum over a range of steps while ranges are raised and lowered.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "remat/check.h"

namespace remat::polish {

/// Segment tree without push-down: top_[i] = add_[i] + the larger of the children. O(log n) per call.
/// Elements stay within [-2^62, 2^62). The amount added to one node may exceed 64 bits, so sums wrap around;
/// of two subtrees under the same nodes, the sign of the difference tells the larger.
class RangeMax {
 public:
  explicit RangeMax(const std::vector<std::int64_t>& start) : size_(1) {
    while (size_ < start.size()) size_ *= 2;
    top_.assign(2 * size_, kNothing);
    add_.assign(2 * size_, 0);
    std::copy(start.begin(), start.end(), top_.begin() + static_cast<std::ptrdiff_t>(size_));
    for (std::size_t i = size_ - 1; i > 0; --i) top_[i] = larger(top_[2 * i], top_[2 * i + 1]);
  }
  /// Adds `amount` to every element of [begin, end).
  void add(std::size_t begin, std::size_t end, std::int64_t amount) {
    REMAT_ASSERT(end <= size_, begin, end, size_);
    if (begin < end) add(1, 0, size_, begin, end, amount);
  }
  /// The maximum of [begin, end), or kNothing where it is empty.
  std::int64_t max(std::size_t begin, std::size_t end) const {
    return begin < end ? max(1, 0, size_, begin, end) : kNothing;
  }
  static constexpr std::int64_t kNothing = -(std::int64_t{1} << 62);

 private:
  static std::int64_t sum(std::int64_t a, std::int64_t b) {
    return static_cast<std::int64_t>(static_cast<std::uint64_t>(a) + static_cast<std::uint64_t>(b));
  }
  static std::int64_t larger(std::int64_t a, std::int64_t b) {
    const auto more =
        static_cast<std::int64_t>(static_cast<std::uint64_t>(a) - static_cast<std::uint64_t>(b));
    return more > 0 ? a : b;
  }
  void add(std::size_t node, std::size_t lo, std::size_t hi, std::size_t begin, std::size_t end,
           std::int64_t amount) {
    if (begin <= lo && hi <= end) {
      top_[node] = sum(top_[node], amount);
      add_[node] = sum(add_[node], amount);
      return;
    }
    const std::size_t middle = (lo + hi) / 2;
    if (begin < middle) add(2 * node, lo, middle, begin, end, amount);
    if (end > middle) add(2 * node + 1, middle, hi, begin, end, amount);
    top_[node] = sum(larger(top_[2 * node], top_[2 * node + 1]), add_[node]);
  }
  std::int64_t max(std::size_t node, std::size_t lo, std::size_t hi, std::size_t begin,
                   std::size_t end) const {
    if (begin <= lo && hi <= end) return top_[node];
    const std::size_t middle = (lo + hi) / 2;
    if (end <= middle) return sum(max(2 * node, lo, middle, begin, end), add_[node]);
    std::int64_t best = max(2 * node + 1, middle, hi, begin, end);
    if (begin < middle) best = larger(max(2 * node, lo, middle, begin, end), best);
    return sum(best, add_[node]);
  }

  std::size_t size_;
  std::vector<std::int64_t> top_, add_;
};

}  // namespace remat::polish
