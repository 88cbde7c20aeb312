// Small pieces of JSON, written without building a tree.
#pragma once

#include <string>
#include <string_view>

namespace remat::io {

/// Appends `text` in quotes. What is not UTF-8 becomes U+FFFD, so that every written file can be read.
void append_quoted(std::string& into, std::string_view text);

/// The shortest spelling that reads back as the same number; `value` must be finite.
std::string spell(double value);

}  // namespace remat::io
