// Parses budgets as users write them, in exact integer arithmetic.
#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <optional>

#include "base/numbers.h"
#include "remat/error.h"
#include "remat/io.h"

namespace remat {
namespace {

__extension__ typedef unsigned __int128 Digits;

/// The number digits / 10^places.
struct Decimal {
  Digits digits = 0;
  int places = 0;
};

struct Unit {
  std::string_view name;
  std::int64_t bytes;
};
constexpr std::array<Unit, 10> kUnits{{{"", 1},
                                       {"B", 1},
                                       {"kB", 1000},
                                       {"MB", 1000 * 1000},
                                       {"GB", 1000 * 1000 * 1000},
                                       {"TB", 1000LL * 1000 * 1000 * 1000},
                                       {"KiB", 1LL << 10},
                                       {"MiB", 1LL << 20},
                                       {"GiB", 1LL << 30},
                                       {"TiB", 1LL << 40}}};

char lower(char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; }
bool is_lower(char c) { return c >= 'a' && c <= 'z'; }
bool is_digit(char c) { return c >= '0' && c <= '9'; }

bool same_word(std::string_view a, std::string_view b) {
  if (a.size() != b.size()) return false;
  for (std::size_t i = 0; i < a.size(); ++i) {
    if (lower(a[i]) != lower(b[i])) return false;
  }
  return true;
}

std::string_view trimmed(std::string_view text) {
  while (!text.empty() && text.front() == ' ') text.remove_prefix(1);
  while (!text.empty() && text.back() == ' ') text.remove_suffix(1);
  return text;
}

/// Takes "12" or "12.5" off the front. Nothing where there is no number or it has over 24 digits.
std::optional<Decimal> take_decimal(std::string_view& text) {
  constexpr std::size_t kMaxDigits = 24;
  Decimal number;
  std::size_t at = 0, digits = 0;
  bool point = false;
  for (; at < text.size(); ++at) {
    if (text[at] == '.' && !point && digits > 0) {
      point = true;
    } else if (is_digit(text[at])) {
      number.digits = number.digits * 10 + static_cast<Digits>(text[at] - '0');
      number.places += point;
      if (++digits > kMaxDigits) return std::nullopt;
    } else {
      break;
    }
  }
  if (digits == 0 || text[at - 1] == '.') return std::nullopt;
  text.remove_prefix(at);
  return number;
}

/// floor(number * factor / divisor), or nothing where it is kMaxCount or more.
std::optional<std::int64_t> scaled(Decimal number, std::int64_t factor, std::int64_t divisor) {
  Digits scale = static_cast<Digits>(divisor);
  for (int i = 0; i < number.places; ++i) scale *= 10;
  // In two parts: the product of digits < 10^24 < 2^80 and factor < 2^62 would overflow.
  const Digits whole = number.digits / scale, rest = number.digits % scale;
  if (factor != 0 && whole >= static_cast<Digits>(kMaxCount)) return std::nullopt;
  Digits part = 0, remainder = 0;
  for (int bit = 62; bit >= 0; --bit) {
    part <<= 1;
    remainder <<= 1;
    if (static_cast<std::uint64_t>(factor) >> bit & 1) remainder += rest;
    while (remainder >= scale) {
      remainder -= scale;
      ++part;
    }
  }
  const Digits total = whole * static_cast<Digits>(factor) + part;
  if (total >= static_cast<Digits>(kMaxCount)) return std::nullopt;
  return static_cast<std::int64_t>(total);
}

[[noreturn]] void refuse(std::string_view text, const std::string& why) {
  throw UsageError("budget '" + std::string(text) + "' " + why);
}

constexpr const char* kForms =
    "is not an amount of memory: write bytes (6442450944), bytes with a unit (6GiB, 800MB) or a share of the "
    "keep-all peak (75%)";

constexpr std::int64_t kSmallNumber = 1000, kLargeGraph = 1 << 20;

const Unit* find_unit(std::string_view name) {
  const auto unit =
      std::find_if(kUnits.begin(), kUnits.end(), [&](const Unit& one) { return same_word(one.name, name); });
  return unit == kUnits.end() ? nullptr : &*unit;
}

/// ": did you mean '6GiB'?" for "6G", or nothing.
std::string meant_unit(std::string_view number, std::string_view unit) {
  std::string_view meant = same_word(unit, "percent") ? "%" : "";
  for (const char* end : {"B", "iB"}) {
    if (const Unit* known = find_unit(std::string(unit) + end)) meant = known->name;
  }
  return meant.empty() ? "" : ": did you mean '" + std::string(number) + std::string(meant) + "'?";
}

/// ": did you mean '60%'?" for "0.6", "'6.5GiB'" for "6.5".
std::string meant_fraction(std::string_view number) {
  double amount = 0;
  std::from_chars(number.data(), number.data() + number.size(), amount, std::chars_format::fixed);
  if (amount == 0) return "";
  std::array<char, 48> percent{};
  std::snprintf(percent.data(), percent.size(), "%.6g%%", 100 * amount);
  const std::string meant = amount < 1 ? percent.data() : std::string(number) + "GiB";
  return ": did you mean '" + meant + "'?";
}

/// Refuses a small number without unit on a large graph: probably a share, or a forgotten unit.
void refuse_lost_unit(std::string_view number, Bytes budget, Bytes floor, Bytes keep_all_peak) {
  if (budget.count() >= kSmallNumber || budget >= floor || keep_all_peak.count() < kLargeGraph) return;
  const std::string unit = budget.count() <= 100 ? "%" : "MiB";
  refuse(number, "is " + exact_bytes(budget) + ", and no plan goes below " + exact_bytes(floor) +
                     ": did you mean '" + std::string(number) + unit + "'?");
}

}  // namespace

std::string format_bytes(Bytes bytes) {
  constexpr std::array<const char*, 5> kNames{"B", "KiB", "MiB", "GiB", "TiB"};
  double amount = static_cast<double>(bytes.count());
  std::size_t unit = 0;
  // An amount that rounds to 1000 is written as 0.977 of the next unit.
  while (amount >= 999.5 && unit + 1 < kNames.size()) {
    amount /= 1024;
    ++unit;
  }
  const int places = unit == 0 || amount >= 99.95 ? 0 : amount >= 9.995 ? 1 : amount >= 0.9995 ? 2 : 3;
  std::array<char, 48> text{};
  std::snprintf(text.data(), text.size(), "%.*f %s", places, amount, kNames[unit]);
  return text.data();
}

std::string exact_bytes(Bytes bytes) {
  const std::string plain = std::to_string(bytes.count()) + " bytes";
  return bytes.count() < kSmallNumber ? plain : format_bytes(bytes) + " (" + plain + ")";
}

std::string describe_budget(std::string_view asked, Bytes bytes) {
  const std::string_view text = trimmed(asked);
  if (text.empty() || text.back() != '%') return exact_bytes(bytes);
  const std::string short_form = bytes.count() < kSmallNumber ? "" : format_bytes(bytes) + ", ";
  return std::string(text) + " (" + short_form + std::to_string(bytes.count()) + " bytes)";
}

Bytes parse_budget(std::string_view text, Bytes keep_all_peak, Bytes floor) {
  std::string_view rest = trimmed(text);
  if (rest.size() > 1 && rest.front() == '-' && is_digit(rest[1])) refuse(text, "is negative");
  const std::string_view whole = rest;
  const auto number = take_decimal(rest);
  if (!number) refuse(text, kForms);
  const std::string_view amount = whole.substr(0, whole.size() - rest.size());
  rest = trimmed(rest);
  std::optional<std::int64_t> bytes;
  if (rest == "%") {
    bytes = scaled(*number, keep_all_peak.count(), 100);
  } else {
    const Unit* unit = find_unit(rest);
    if (!unit) {
      const std::string hint = meant_unit(amount, rest);
      refuse(text, hint.empty() ? kForms : "is not an amount of memory" + hint);
    }
    if (unit->bytes == 1 && number->places > 0) {
      refuse(text, "is not a whole number of bytes" + meant_fraction(amount));
    }
    bytes = scaled(*number, unit->bytes, 1);
  }
  if (!bytes) refuse(text, "is not below " + std::to_string(kMaxCount) + " bytes");
  if (*bytes == 0) refuse(text, "is 0 bytes: a budget must be positive");
  if (rest.empty()) refuse_lost_unit(trimmed(text), Bytes(*bytes), floor, keep_all_peak);
  return Bytes(*bytes);
}

std::int64_t parse_bandwidth(std::string_view text) {
  const auto refuse_bandwidth = [&](const std::string& why) {
    throw UsageError("bandwidth '" + std::string(text) + "' " + why);
  };
  constexpr const char* kBandwidths = "is not bytes per second: write 25GB/s, 12GiB/s or 800MB/s";
  std::string_view rest = trimmed(text);
  const std::string_view whole = rest;
  const auto number = take_decimal(rest);
  if (!number) refuse_bandwidth(kBandwidths);
  const std::string amount(whole.substr(0, whole.size() - rest.size()));
  rest = trimmed(rest);
  if (rest.ends_with("/s")) rest = trimmed(rest.substr(0, rest.size() - 2));
  if (rest.empty())
    refuse_bandwidth("has no unit: write " + amount + "GB/s, " + amount + "MB/s or " + amount + "B/s");
  const Unit* unit = find_unit(rest);
  if (!unit) refuse_bandwidth(kBandwidths);
  // Links are sold in bits: 25 Gb/s are 3.1 GB/s.
  if (rest.ends_with('b') && rest != "b" && !is_lower(rest.front())) {
    refuse_bandwidth("is in bits: write bytes per second, as in 25GB/s");
  }
  const auto bytes = scaled(*number, unit->bytes, 1);
  if (!bytes) refuse_bandwidth("is not below " + std::to_string(kMaxCount) + " bytes per second");
  if (*bytes == 0) refuse_bandwidth("is less than one byte per second");
  return *bytes;
}

double parse_gap(std::string_view text) {
  const std::string_view whole = trimmed(text);
  if (whole == "0") return 0;
  double percent = 0;
  const auto [end, error] =
      std::from_chars(whole.data(), whole.data() + whole.size(), percent, std::chars_format::fixed);
  const bool is_number = error == std::errc() && std::isfinite(percent) && percent >= 0;
  if (!is_number || trimmed(whole.substr(narrow<std::size_t>(end - whole.data()))) != "%") {
    throw UsageError("gap '" + std::string(text) + "' is not a percentage: write 0.1%, or 0");
  }
  return percent / 100;
}

}  // namespace remat
