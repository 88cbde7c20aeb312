// Vector loops of the chain table: minima over sums of rows of sixteen lanes.
#pragma once

#include <cstdint>

namespace remat::rotor {

inline constexpr std::int32_t kLanes = 16;
inline constexpr std::int32_t kTile = 4;

using Cell = std::uint32_t;

/// One cache line, so that no load crosses two.
struct alignas(64) Line {
  Cell lane[kLanes];
};

/// best = min(best, right[k stride] + left[k]) over k < count, lane by lane. Sums fit into 32 bits.
void fold(Line& best, const Line* right, std::int64_t stride, const Line* left, std::int64_t count);

/// The same for four by four pairs at once: best[4 i + j] from left[i] and the j-th of four neighbouring
/// lines at `right`.
void fold_tile(Line* const* best, const Line* right, std::int64_t stride, const Line* const* left,
               std::int64_t count);

}  // namespace remat::rotor
