// Vector loops over the cells of one block.
#pragma once

#include <cstdint>

namespace remat::kernels {

/// Sum over cells m of max(0, m + added + delta - budget) - max(0, m + added - budget). All of m + added,
/// m + added + delta and budget lie in [0, 2^31); of 64 bits, m + added and delta in [-2^55, 2^55]; n <= 64.
std::int64_t excess_change(const std::int32_t* cells, std::int32_t n, std::int64_t added, std::int64_t budget,
                           std::int64_t delta);
std::int64_t excess_change(const std::int64_t* cells, std::int32_t n, std::int64_t added, std::int64_t budget,
                           std::int64_t delta);

struct Range {
  std::int64_t min, max;
};
/// Smallest and largest of m + added; n > 0.
Range range(const std::int32_t* cells, std::int32_t n, std::int64_t added);
Range range(const std::int64_t* cells, std::int32_t n, std::int64_t added);

}  // namespace remat::kernels
