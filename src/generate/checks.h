// Range checks for options of generators; the error is one line with the option, its value and its range.
#pragma once

#include <sstream>
#include <string_view>

#include "remat/error.h"

namespace remat::generate {

template <class T>
void require_between(std::string_view option, T value, T low, T high) {
  if (value >= low && value <= high) return;
  std::ostringstream text;
  text << option << " = " << value << " is outside [" << low << ", " << high << "]";
  throw UsageError(text.str());
}

/// Limit of counts (ops, layers, ...): fits into a graph's 32-bit ids.
inline constexpr std::int64_t kMaxOps = std::int64_t{1} << 30;

}  // namespace remat::generate
