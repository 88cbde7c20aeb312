// Texts from files, for use in messages.
#pragma once

#include <string>
#include <string_view>

namespace remat {

/// The text with control characters replaced by spaces, so that every message is one line.
inline std::string one_line(std::string_view text) {
  std::string result(text);
  for (char& c : result) {
    if (static_cast<unsigned char>(c) < ' ' || c == 0x7f) c = ' ';
  }
  return result;
}

}  // namespace remat
