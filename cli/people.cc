#include "people.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <set>
#include <string_view>

namespace remat::cli {
namespace {

bool is_bytes(const std::string& key) {
  static const std::set<std::string> kKeys{"budget",
                                           "peak",
                                           "keep_all_peak",
                                           "smallest_peak",
                                           "best_peak",
                                           "smallest_known_budget",
                                           "floor",
                                           "peak_lower_bound",
                                           "peak_lower_bound_free_order",
                                           "peak_bound",
                                           "total_bytes",
                                           "resident",
                                           "pool",
                                           "arena",
                                           "capacity",
                                           "arena_lower_bound",
                                           "best_arena",
                                           "bytes_out",
                                           "bytes_in",
                                           "host_peak",
                                           "live_peak",
                                           "allocated_peak",
                                           "reserved_peak",
                                           "best_reserved",
                                           "host_moves_out",
                                           "host_moves_in",
                                           "held",
                                           "saved",
                                           "saved_bytes",
                                           "full_peak",
                                           "least_budget",
                                           "bytes"};
  return kKeys.contains(key);
}

bool is_duration(const std::string& key) {
  static const std::set<std::string> kKeys{"duration",       "base_duration", "duration_lower_bound",
                                           "duration_bound", "stalled",       "slowest",
                                           "full_duration"};
  return kKeys.contains(key);
}

bool ends_in_percent(const std::string& key) { return key.ends_with("percent"); }

/// A graph's time unit in seconds, or 0 if it is not a unit of time.
double seconds_of(const std::string& time_unit) {
  if (time_unit == "ns") return 1e-9;
  if (time_unit == "us") return 1e-6;
  if (time_unit == "ms") return 1e-3;
  return time_unit == "s" ? 1 : 0;
}

/// A word in pieces of at most `width` characters, cut after punctuation if possible.
std::vector<std::string> pieces(std::string word, std::size_t width) {
  std::vector<std::string> all;
  while (width_of(word) > width) {
    std::size_t end = 0, characters = 0, mark = 0;
    for (; characters < width; ++end) {
      if ((static_cast<unsigned char>(word[end + 1]) & 0xc0) == 0x80) continue;  // inside a character
      ++characters;
      if (std::string_view("._-/").find(word[end]) != std::string_view::npos) mark = end + 1;
    }
    const std::size_t cut = mark > 0 ? mark : end;
    all.push_back(word.substr(0, cut));
    word.erase(0, cut);
  }
  all.push_back(std::move(word));
  return all;
}

}  // namespace

int terminal_columns() {
  constexpr int kUsual = 80;
  if (is_standard_output_taken()) return 0;
  if (const char* given = std::getenv("REMAT_COLUMNS")) return std::max(0, std::atoi(given));
  if (::isatty(STDOUT_FILENO) != 1) return 0;
  struct winsize size{};
  const bool known = ::ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0;
  return known ? size.ws_col : kUsual;
}

bool is_dumb_terminal() {
  const char* term = std::getenv("TERM");
  return term != nullptr && std::string_view(term) == "dumb";
}

std::string format_seconds(double seconds) {
  struct Unit {
    const char* name;
    double seconds;
  };
  constexpr std::array<Unit, 4> kUnits{{{"s", 1}, {"ms", 1e-3}, {"us", 1e-6}, {"ns", 1e-9}}};
  const auto* unit = std::find_if(kUnits.begin(), kUnits.end() - 1,
                                  [&](const Unit& one) { return seconds >= 0.9995 * one.seconds; });
  if (seconds == 0) unit = kUnits.begin();
  std::array<char, 48> text{};
  const double amount = seconds / unit->seconds;
  // %.3g writes 1234 as 1.23e+03.
  std::snprintf(text.data(), text.size(), amount < 999.5 ? "%.3g %s" : "%.0f %s", amount, unit->name);
  return text.data();
}

std::string for_people(const std::string& key, const Report& value, const std::string& time_unit) {
  if (value.is_number_integer() && is_bytes(key)) return format_bytes(Bytes(value.get<std::int64_t>()));
  if (value.is_number() && ends_in_percent(key)) return percent(value.get<double>() / 100);
  if (value.is_number() && (key == "overhead" || key == "gap" || key == "gap_limit" ||
                            key == "full_overhead" || key.starts_with("busy_")))
    return percent(value.get<double>());
  if (value.is_number() && key == "seconds") return format_seconds(value.get<double>());
  const double unit = seconds_of(time_unit);
  if (value.is_number() && unit > 0 && is_duration(key)) return format_seconds(unit * value.get<double>());
  return cell(value);
}

std::string head_for_people(const std::string& key) {
  if (key == "budget_percent") return "of keep-all";
  std::string head = key.ends_with("_percent") ? key.substr(0, key.size() - 8) : key;
  if (head == "percent") return "share";
  std::replace(head.begin(), head.end(), '_', ' ');
  return head;
}

std::size_t width_of(const std::string& text) {
  return static_cast<std::size_t>(std::count_if(
      text.begin(), text.end(), [](char c) { return (static_cast<unsigned char>(c) & 0xc0) != 0x80; }));
}

std::string flush_right(const std::string& text, std::size_t width) {
  return std::string(width - std::min(width, width_of(text)), ' ') + text;
}

std::size_t longest_word(const std::string& text) {
  std::size_t longest = 0;
  for (std::size_t begin = 0; begin <= text.size();) {
    const std::size_t end = std::min(text.find(' ', begin), text.size());
    longest = std::max(longest, width_of(text.substr(begin, end - begin)));
    begin = end + 1;
  }
  return longest;
}

std::vector<std::string> wrapped(const std::string& text, std::size_t width) {
  std::vector<std::string> lines{""};
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = std::min(text.find(' ', at), text.size());
    const std::vector<std::string> word = pieces(text.substr(at, end - at), width);
    std::string& line = lines.back();
    if (line.empty()) {
      line = word.front();
    } else if (width_of(line) + 1 + width_of(word.front()) <= width) {
      line += " " + word.front();
    } else {
      lines.push_back(word.front());
    }
    lines.insert(lines.end(), word.begin() + 1, word.end());
    at = end + 1;
  }
  return lines;
}

}  // namespace remat::cli
