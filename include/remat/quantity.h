// Bytes and durations: 64-bit integers that cannot be mixed up.
#pragma once

#include <compare>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>

#include "remat/check.h"
#include "remat/export.h"

namespace REMAT_API remat {

/// A signed 64-bit amount of one unit. Sums are checked where data comes in (`checked_add`) and asserted
/// in debug builds everywhere else.
template <class Tag>
class Quantity {
 public:
  constexpr Quantity() = default;
  constexpr explicit Quantity(std::int64_t count) : count_(count) {}
  constexpr std::int64_t count() const { return count_; }

  constexpr Quantity& operator+=(Quantity other) {
    [[maybe_unused]] const bool overflows = __builtin_add_overflow(count_, other.count_, &count_);
    REMAT_ASSERT(!overflows, other.count_);
    return *this;
  }
  constexpr Quantity& operator-=(Quantity other) {
    [[maybe_unused]] const bool overflows = __builtin_sub_overflow(count_, other.count_, &count_);
    REMAT_ASSERT(!overflows, other.count_);
    return *this;
  }
  friend constexpr Quantity operator+(Quantity a, Quantity b) { return a += b; }
  friend constexpr Quantity operator-(Quantity a, Quantity b) { return a -= b; }
  friend constexpr auto operator<=>(Quantity, Quantity) = default;

 private:
  std::int64_t count_ = 0;
};

using Bytes = Quantity<struct BytesTag>;
using Duration = Quantity<struct DurationTag>;

/// a + b, or nothing when the sum does not fit into 64 bits.
template <class Tag>
constexpr std::optional<Quantity<Tag>> checked_add(Quantity<Tag> a, Quantity<Tag> b) {
  std::int64_t sum = 0;
  if (__builtin_add_overflow(a.count(), b.count(), &sum)) return std::nullopt;
  return Quantity<Tag>(sum);
}

/// Sizes and durations in files are integers in [0, kMaxCount).
inline constexpr std::int64_t kMaxCount = std::int64_t{1} << 62;

/// Sums and products of amounts: 2^31 steps of 2^62 each fit.
/// @cond
__extension__ typedef __int128 Wide;
/// @endcond

/// The decimal digits.
std::string to_string(Wide amount);

/// The amount, or the nearest one that fits into 64 bits.
constexpr std::int64_t capped(Wide amount) {
  using Limits = std::numeric_limits<std::int64_t>;
  if (amount > Limits::max()) return Limits::max();
  return amount < Limits::min() ? Limits::min() : static_cast<std::int64_t>(amount);
}

/// Duration that `simulate` gives a plan of 2^63 or more, which no valid plan takes.
inline constexpr Duration kTooLong{std::numeric_limits<std::int64_t>::max()};

}  // namespace REMAT_API remat
