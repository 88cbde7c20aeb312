// The sizes that the allocator's rules are made of.
#pragma once

#include "remat/quantity.h"

namespace remat::allocator {

inline constexpr Bytes kMiB{1 << 20};
inline constexpr Bytes kBlock{512};              ///< sizes are multiples of it
inline constexpr Bytes kMostSmall{1 << 20};      ///< the largest request of the small pool
inline constexpr Bytes kSmallSegment{2 << 20};   ///< what small requests share
inline constexpr Bytes kLeastLarge{10 << 20};    ///< from here on a request has a segment of its own ...
inline constexpr Bytes kLargeMultiple{2 << 20};  ///< ... of a multiple of it

/// The next multiple.
constexpr Bytes round_up(Bytes size, Bytes multiple) {
  return Bytes((size.count() + multiple.count() - 1) / multiple.count() * multiple.count());
}

}  // namespace remat::allocator
