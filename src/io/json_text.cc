#include "io/json_text.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <nlohmann/json.hpp>

namespace remat::io {

void append_quoted(std::string& into, std::string_view text) {
  const bool plain = std::all_of(text.begin(), text.end(),
                                 [](char c) { return c >= ' ' && c < 0x7f && c != '"' && c != '\\'; });
  if (!plain) {
    using Json = nlohmann::json;
    into += Json(text).dump(-1, ' ', false, Json::error_handler_t::replace);
    return;
  }
  into += '"';
  into += text;
  into += '"';
}

std::string spell(double value) {
  std::array<char, 32> text{};
  const auto end = std::to_chars(text.data(), text.data() + text.size(), value).ptr;
  return {text.data(), end};
}

}  // namespace remat::io
