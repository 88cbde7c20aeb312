// Links to a host.
#pragma once

#include <cstdint>
#include <optional>

#include "remat/host.h"

namespace remat::testing {

constexpr std::int64_t kBytesPerUs = 1'000'000;

/// The same rate in both directions, and a host without a limit.
inline Host host_of(double bytes_per_us) {
  const auto rate = static_cast<std::int64_t>(bytes_per_us * kBytesPerUs);
  return {.out = rate, .in = rate, .budget = std::nullopt};
}

}  // namespace remat::testing
