#include "report/packed.h"

#include <algorithm>
#include <unordered_map>
#include <utility>

#include "base/numbers.h"
#include "remat/check.h"

namespace remat::report {
namespace {

using Unsigned = std::vector<std::uint64_t>;

void append(std::string& into, std::uint64_t number) {
  for (; number >= 0x80; number >>= 7) into += static_cast<char>(0x80 | (number & 0x7f));
  into += static_cast<char>(number);
}

/// Finds repetitions (LZ77): earlier places that begin with the same four numbers, the newest first.
class Repeats {
 public:
  struct Found {
    std::size_t length = 0, distance = 0;
  };
  explicit Repeats(const Unsigned& column) : column_(column), before_(column.size(), kNone) {}

  /// The longest repetition at `place`, if it saves more than its two numbers.
  Found at(std::size_t place) const {
    Found best;
    if (place + kLeast > column_.size()) return best;
    const auto newest = newest_.find(key(place));
    std::size_t candidate = newest == newest_.end() ? kNone : newest->second;
    for (int tried = 0; candidate != kNone && tried < kMostTried; ++tried, candidate = before_[candidate]) {
      std::size_t length = 0;
      while (place + length < column_.size() && column_[candidate + length] == column_[place + length]) {
        ++length;
      }
      if (length > best.length) best = {length, place - candidate};
    }
    return best.length >= kLeast ? best : Found{};
  }
  void add(std::size_t place) {
    if (place + kLeast > column_.size()) return;
    const auto [newest, is_new] = newest_.try_emplace(key(place), place);
    if (is_new) return;
    before_[place] = newest->second;
    newest->second = place;
  }

 private:
  static constexpr std::size_t kLeast = 4;
  static constexpr std::size_t kNone = static_cast<std::size_t>(-1);
  static constexpr int kMostTried = 16;

  std::uint64_t key(std::size_t place) const {
    std::uint64_t mixed = 0;
    for (std::size_t i = place; i < place + kLeast; ++i) {
      mixed = (mixed ^ column_[i]) * 0x9e3779b97f4a7c15U;
      mixed ^= mixed >> 29;
    }
    return mixed;
  }

  const Unsigned& column_;
  std::unordered_map<std::uint64_t, std::size_t> newest_;
  std::vector<std::size_t> before_;
};

std::string packed(const Unsigned& column) {
  std::string bytes;
  append(bytes, column.size());
  Repeats repeats(column);
  std::size_t written = 0;
  const auto write_out = [&](std::size_t end) {
    append(bytes, end - written);
    for (; written < end; ++written) append(bytes, column[written]);
  };
  for (std::size_t place = 0; place < column.size();) {
    const Repeats::Found found = repeats.at(place);
    const std::size_t end = place + std::max<std::size_t>(1, found.length);
    if (found.length > 0) {
      write_out(place);
      append(bytes, found.length);
      append(bytes, found.distance);
      written = end;
    }
    for (; place < end; ++place) repeats.add(place);
  }
  if (written < column.size()) write_out(column.size());
  return base64(bytes);
}

std::uint64_t without_sign(std::int64_t number) {
  return (static_cast<std::uint64_t>(number) << 1) ^ static_cast<std::uint64_t>(number >> 63);
}

bool is_digit(char c) { return '0' <= c && c <= '9'; }

/// The number that begins a text, as it would be written again, or nothing.
std::string_view number_at_front(std::string_view text) {
  constexpr std::size_t kMostDigits = 15;  // of an integer that a double holds
  std::size_t length = 0;
  while (length < text.size() && is_digit(text[length])) ++length;
  const bool is_plain = length <= kMostDigits && (length == 1 || text.front() != '0');
  return text.substr(0, is_plain ? length : 0);
}

}  // namespace

std::string base64(std::string_view bytes) {
  constexpr std::string_view kDigits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string text;
  text.reserve((bytes.size() + 2) / 3 * 4);
  for (std::size_t i = 0; i < bytes.size(); i += 3) {
    std::uint32_t group = 0;
    for (std::size_t j = i; j < i + 3; ++j) {
      group = group << 8 | (j < bytes.size() ? static_cast<unsigned char>(bytes[j]) : 0);
    }
    for (std::size_t digit = 0; digit < 4; ++digit) {
      text += i + digit <= bytes.size() ? kDigits[group >> (18 - 6 * digit) & 63] : '=';
    }
  }
  return text;
}

std::string pack(const std::vector<std::int64_t>& column) {
  REMAT_ASSERT(std::ranges::all_of(column, [](std::int64_t number) { return number >= 0; }), column.size());
  return packed(Unsigned(column.begin(), column.end()));
}

std::string pack_signed(const std::vector<std::int64_t>& column) {
  Unsigned numbers(column.size());
  std::transform(column.begin(), column.end(), numbers.begin(), without_sign);
  return packed(numbers);
}

std::string pack_differences(const std::vector<std::int64_t>& column) {
  return pack_differences(column, std::vector<std::size_t>(column.size()));
}

std::string pack_differences(const std::vector<std::int64_t>& column,
                             const std::vector<std::size_t>& contexts) {
  REMAT_CHECK(contexts.size() == column.size(), contexts.size(), column.size());
  Unsigned numbers;
  numbers.reserve(column.size());
  std::vector<std::int64_t> before;
  for (std::size_t i = 0; i < column.size(); ++i) {
    if (contexts[i] >= before.size()) before.resize(contexts[i] + 1);
    numbers.push_back(without_sign(column[i] - std::exchange(before[contexts[i]], column[i])));
  }
  return packed(numbers);
}

NamePatterns name_patterns(const std::vector<std::string_view>& names) {
  NamePatterns result;
  std::unordered_map<std::string, std::size_t> known;
  std::vector<std::vector<std::int64_t>> before;  // by pattern and place
  std::vector<std::int64_t> numbers;              // of one name
  for (std::string_view name : names) {
    std::string pattern;
    numbers.clear();
    for (std::size_t i = 0; i < name.size();) {
      const bool is_begin = i == 0 || !is_digit(name[i - 1]);
      const std::string_view digits = is_begin ? number_at_front(name.substr(i)) : std::string_view();
      if (digits.empty()) {
        pattern += static_cast<unsigned char>(name[i]) < ' ' ? ' ' : name[i];
        ++i;
        continue;
      }
      numbers.push_back(0);
      for (char digit : digits) numbers.back() = 10 * numbers.back() + (digit - '0');
      pattern += '\1';
      i += digits.size();
    }
    const auto [at, is_new] = known.try_emplace(std::move(pattern), result.patterns.size());
    if (is_new) {
      result.patterns.push_back(at->first);
      before.emplace_back(numbers.size());
    }
    result.pattern.push_back(narrow<std::int64_t>(at->second));
    for (std::size_t place = 0; place < numbers.size(); ++place) {
      const std::int64_t last = std::exchange(before[at->second][place], numbers[place]);
      result.numbers.push_back(numbers[place] - last);
    }
  }
  return result;
}

}  // namespace remat::report
