// Compresses columns of integers and of names to short texts, most of a page of 100,000 steps. Layers of a
// model repeat each other, and so do their columns.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace remat::report {

/// Integers that must not be negative, as a sequence of numbers in base 128, lowest digits first, the top bit
/// set on all but the last digit (LEB128); the digits in base64. First the count, then in turns: the number
/// of literals, the literals, the number of repeated entries, and how far back they begin. A repetition may
/// overlap its own output.
std::string pack(const std::vector<std::int64_t>& column);
/// The same of any integers: d is written as 2 d, or as -2 d - 1 where it is negative.
std::string pack_signed(const std::vector<std::int64_t>& column);
/// The same of the differences between neighbours, the first from 0.
std::string pack_differences(const std::vector<std::int64_t>& column);
/// The same with the difference to the last number of the same context, since layers read at equal distances.
/// Contexts are small numbers, one for each entry of the column.
std::string pack_differences(const std::vector<std::int64_t>& column,
                             const std::vector<std::size_t>& contexts);
std::string base64(std::string_view bytes);

/// Names split into patterns and numbers: "h.57.attn" is the pattern "h.\1.attn" and 57.
struct NamePatterns {
  std::vector<std::string> patterns;  ///< distinct, by their first name
  std::vector<std::int64_t> pattern;  ///< of each name
  /// All numbers in sequence, each less the one at its place (first, second, ...) in the name before with
  /// this pattern, from 0.
  std::vector<std::int64_t> numbers;
};
/// Control characters of names become spaces. A number with a leading zero or more than 15 digits is text.
NamePatterns name_patterns(const std::vector<std::string_view>& names);

}  // namespace remat::report
