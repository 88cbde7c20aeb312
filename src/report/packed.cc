#include "report/packed.h"

#include <cassert>

namespace remat::report {
namespace {

void append(std::string& into, std::uint64_t number) {
  for (; number >= 0x80; number >>= 7) into += static_cast<char>(0x80 | (number & 0x7f));
  into += static_cast<char>(number);
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
  std::string bytes;
  for (std::int64_t number : column) {
    assert(number >= 0);
    append(bytes, static_cast<std::uint64_t>(number));
  }
  return base64(bytes);
}

std::string pack_differences(const std::vector<std::int64_t>& column) {
  std::string bytes;
  std::int64_t before = 0;
  for (std::int64_t number : column) {
    const std::int64_t difference = number - before;
    append(bytes,
           (static_cast<std::uint64_t>(difference) << 1) ^ static_cast<std::uint64_t>(difference >> 63));
    before = number;
  }
  return base64(bytes);
}

}  // namespace remat::report
