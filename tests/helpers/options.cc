#include "helpers/options.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <vector>

namespace remat::testing {
namespace {

/// Within [0, span]; both ends and powers of two are more likely.
std::int64_t random_part(std::int64_t span, Random& random) {
  if (random.chance(0.2)) return random.chance(0.5) ? 0 : span;
  std::int64_t bits = 0;
  while (bits < 62 && (span >> bits) > 0) ++bits;
  return random.between(0, std::min(span, (std::int64_t{1} << random.between(0, bits)) - 1));
}

double random_between(double low, double high, Random& random) {
  if (random.chance(0.2)) return random.chance(0.5) ? low : high;
  const double part = random.chance(0.5) ? random.unit() : std::pow(10, -6 * random.unit());
  return std::min(high, low + part * (high - low));
}

std::string spell(double number) {
  char buffer[32];
  return {buffer, std::to_chars(buffer, buffer + sizeof buffer, number).ptr};
}

}  // namespace

std::string random_value(const OptionInfo& option, Random& random) {
  if (const auto* range = std::get_if<IntegerRange>(&option.range)) {
    return std::to_string(range->low + random_part(range->high - range->low, random));
  }
  if (const auto* range = std::get_if<NumberRange>(&option.range)) {
    return spell(random_between(range->low, range->high, random));
  }
  if (option.type == OptionType::kFlag) return random.chance(0.5) ? "on" : "off";
  const std::vector<std::string> texts{"retention", "tw_remat+evict", "rk_rotor+greedy"};
  const std::vector<std::string>& all = option.type == OptionType::kText ? texts : option.choices;
  return all[static_cast<std::size_t>(random.below(std::ssize(all)))];
}

}  // namespace remat::testing
