// Texts from files inside messages.
#pragma once

#include <string>
#include <string_view>

namespace remat {

/// The text with spaces for control characters: a message is one line, whatever a name holds.
inline std::string one_line(std::string_view text) {
  std::string result(text);
  for (char& c : result) {
    if (static_cast<unsigned char>(c) < ' ' || c == 0x7f) c = ' ';
  }
  return result;
}

}  // namespace remat
