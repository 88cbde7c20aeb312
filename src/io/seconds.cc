#include <array>
#include <charconv>
#include <cmath>
#include <string>

#include "remat/error.h"
#include "remat/io.h"

namespace remat {

double parse_seconds(std::string_view text) {
  struct Unit {
    std::string_view name;
    double seconds;
  };
  constexpr std::array<Unit, 5> kUnits{{{"", 1}, {"s", 1}, {"ms", 1e-3}, {"m", 60}, {"h", 3600}}};
  double amount = 0;
  const auto [at, error] =
      std::from_chars(text.data(), text.data() + text.size(), amount, std::chars_format::fixed);
  if (error == std::errc() && amount >= 0 && std::isfinite(amount)) {
    const std::string_view rest = text.substr(static_cast<std::size_t>(at - text.data()));
    for (const Unit& unit : kUnits) {
      if (unit.name == rest) return amount * unit.seconds;
    }
  }
  throw UsageError("time limit '" + std::string(text) + "' is not a time: write 10s, 500ms, 2m or 1h");
}

}  // namespace remat
