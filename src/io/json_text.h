// Small pieces of JSON, written without building a tree.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace remat::io {

/// `text` in quotes. What is not UTF-8 becomes U+FFFD, so that every written file can be read.
std::string quoted(std::string_view text);

/// The shortest spelling that reads back as the same number; `value` must be finite.
std::string spell(double value);

/// An amount, or null.
template <class Q>
std::string spell(const std::optional<Q>& amount) {
  return amount ? std::to_string(amount->count()) : "null";
}

}  // namespace remat::io
