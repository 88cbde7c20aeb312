#include "plan/tracker_kernels.h"

#include <algorithm>

#include "base/vector_clones.h"

namespace remat::kernels {
namespace {

REMAT_VECTOR
std::int64_t excess_change_here(const std::int32_t* cells, std::int32_t n, std::int64_t added,
                                std::int64_t budget, std::int64_t delta) {
  // Sums of differences need more than 32 bits: low and high halves are summed separately.
  const auto shift = static_cast<std::uint32_t>(added);
  const auto limit = static_cast<std::int32_t>(budget);
  const auto change = static_cast<std::int32_t>(delta);
  std::int32_t low = 0;
  std::int32_t high = 0;
  for (std::int32_t i = 0; i < n; ++i) {
    const std::int32_t over = static_cast<std::int32_t>(static_cast<std::uint32_t>(cells[i]) + shift) - limit;
    const std::int32_t difference = std::max(over + change, 0) - std::max(over, 0);
    low += difference & 0xffff;
    high += difference >> 16;
  }
  return static_cast<std::int64_t>(high) * 65536 + low;
}

REMAT_VECTOR
std::int64_t excess_change_here(const std::int64_t* cells, std::int32_t n, std::int64_t added,
                                std::int64_t budget, std::int64_t delta) {
  std::int64_t sum = 0;
  // Cells and their added amount may have wrapped around; their sum has not.
  const std::uint64_t limit = static_cast<std::uint64_t>(budget) - static_cast<std::uint64_t>(added);
  for (std::int32_t i = 0; i < n; ++i) {
    const auto over = static_cast<std::int64_t>(static_cast<std::uint64_t>(cells[i]) - limit);
    sum += std::max<std::int64_t>(over + delta, 0) - std::max<std::int64_t>(over, 0);
  }
  return sum;
}

REMAT_VECTOR
Range range_here(const std::int32_t* cells, std::int32_t n, std::int64_t added) {
  const auto shift = static_cast<std::uint32_t>(added);
  std::int32_t low = INT32_MAX;
  std::int32_t high = INT32_MIN;
  for (std::int32_t i = 0; i < n; ++i) {
    const auto memory = static_cast<std::int32_t>(static_cast<std::uint32_t>(cells[i]) + shift);
    low = std::min(low, memory);
    high = std::max(high, memory);
  }
  return {low, high};
}

REMAT_VECTOR
Range range_here(const std::int64_t* cells, std::int32_t n, std::int64_t added) {
  std::int64_t low = INT64_MAX;
  std::int64_t high = INT64_MIN;
  for (std::int32_t i = 0; i < n; ++i) {
    const auto memory =
        static_cast<std::int64_t>(static_cast<std::uint64_t>(cells[i]) + static_cast<std::uint64_t>(added));
    low = std::min(low, memory);
    high = std::max(high, memory);
  }
  return {low, high};
}

}  // namespace

std::int64_t excess_change(const std::int32_t* cells, std::int32_t n, std::int64_t added, std::int64_t budget,
                           std::int64_t delta) {
  return excess_change_here(cells, n, added, budget, delta);
}

std::int64_t excess_change(const std::int64_t* cells, std::int32_t n, std::int64_t added, std::int64_t budget,
                           std::int64_t delta) {
  return excess_change_here(cells, n, added, budget, delta);
}

Range range(const std::int32_t* cells, std::int32_t n, std::int64_t added) {
  return range_here(cells, n, added);
}

Range range(const std::int64_t* cells, std::int32_t n, std::int64_t added) {
  return range_here(cells, n, added);
}

}  // namespace remat::kernels
