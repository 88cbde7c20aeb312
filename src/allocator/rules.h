// The sizes in the allocator's rules.
#pragma once

#include "remat/quantity.h"

namespace remat::allocator {

inline constexpr Bytes kMiB{1 << 20};
inline constexpr Bytes kBlock{512};              ///< sizes are multiples of it
inline constexpr Bytes kMostSmall{1 << 20};      ///< the largest request of the small pool
inline constexpr Bytes kSmallSegment{2 << 20};   ///< segment for small requests
inline constexpr Bytes kLeastLarge{10 << 20};    ///< requests from here on get their own segment ...
inline constexpr Bytes kLargeMultiple{2 << 20};  ///< ... of a multiple of this size

/// The next multiple.
constexpr Bytes round_up(Bytes size, Bytes multiple) {
  return Bytes((size.count() + multiple.count() - 1) / multiple.count() * multiple.count());
}

}  // namespace remat::allocator
