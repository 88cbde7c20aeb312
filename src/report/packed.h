// Columns of integers as short texts: what a page of 100,000 steps is mostly made of.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace remat::report {

/// Each integer, which must not be negative, in base 128 with the lowest digits first and the top bit set on
/// all but the last digit (LEB128); the digits in base64.
std::string pack(const std::vector<std::int64_t>& column);
/// The same of the differences between neighbours, the first from 0; difference d is written as 2 d, or -2 d
/// - 1 where it is negative.
std::string pack_differences(const std::vector<std::int64_t>& column);
std::string base64(std::string_view bytes);

}  // namespace remat::report
