#include "base/portable_math.h"

#include <bit>
#include <cstdint>

#include "base/numbers.h"

namespace remat {

double minus_log(double u) {
  const auto bits = std::bit_cast<std::uint64_t>(u);
  int exponent = narrow<int>(bits >> 52) - 1022;
  double m = std::bit_cast<double>((bits & 0xfffffffffffffULL) | 0x3fe0000000000000ULL);  // [0.5, 1)
  if (m < 0.70710678118654752) {
    m *= 2;
    --exponent;
  }
  const double t = (m - 1) / (m + 1);
  const double t2 = t * t;
  const double series = t * (2 + t2 * (2.0 / 3 + t2 * (2.0 / 5 + t2 * (2.0 / 7 + t2 * (2.0 / 9)))));
  return -(series + exponent * 0.69314718055994531);
}

double exponential(double x) {
  // A short series, then squarings.
  x /= 64;
  double e = 1 + x * (1 + x / 2 * (1 + x / 3 * (1 + x / 4)));
  for (int i = 0; i < 6; ++i) e *= e;
  return e;
}

double geometric(double from, double to, double fraction) {
  const double ratio = to / from;
  double log_ratio = -minus_log(ratio < 1 ? ratio : 1 / ratio);
  if (ratio >= 1) log_ratio = -log_ratio;
  return from * exponential(log_ratio * fraction);
}

}  // namespace remat
