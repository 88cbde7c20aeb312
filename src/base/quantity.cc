#include "remat/quantity.h"

#include <algorithm>

namespace remat {

std::string to_string(Wide amount) {
  std::string digits;
  // Digit by digit without negating: the least amount has no counterpart.
  for (Wide rest = amount; rest != 0 || digits.empty(); rest /= 10) {
    const int digit = static_cast<int>(rest % 10);
    digits.push_back(static_cast<char>('0' + (digit < 0 ? -digit : digit)));
  }
  if (amount < 0) digits.push_back('-');
  std::reverse(digits.begin(), digits.end());
  return digits;
}

}  // namespace remat
