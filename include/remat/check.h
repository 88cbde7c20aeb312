// Checks of invariants that no input can break: a failure is a bug of the library.
#pragma once

#include <concepts>
#include <string>
#include <string_view>
#include <type_traits>

#include "remat/export.h"

/// How many checks are compiled in. 0: only REMAT_CHECK. 1, "debug": REMAT_ASSERT too. 2, "heavy": all of
/// them. CMake sets it from its variable of the same name; without that it follows NDEBUG, as assert does.
#ifndef REMAT_CHECKS
#ifdef NDEBUG
#define REMAT_CHECKS 0
#else
#define REMAT_CHECKS 1
#endif
#endif

/// Throws std::logic_error unless the condition holds. The message has the file, the line, the condition, and
/// the values of the further arguments. Always on: for cheap conditions, and where going on would be
/// undefined behaviour.
#define REMAT_CHECK(condition, ...) REMAT_CHECK_FROM(0, (condition), #condition, __VA_ARGS__)

/// The same from level "debug" on: for conditions of a few instructions.
#define REMAT_ASSERT(condition, ...) REMAT_CHECK_FROM(1, (condition), #condition, __VA_ARGS__)

/// The same at level "heavy": for conditions that cost at least as much as the work that they check, such as
/// rebuilding a structure to compare. Code that only the condition needs belongs inside it.
#define REMAT_ASSERT_HEAVY(condition, ...) REMAT_CHECK_FROM(2, (condition), #condition, __VA_ARGS__)

/// @cond
// The condition is compiled at every level, so that it always builds, even where it is off.
#define REMAT_CHECK_FROM(level, condition, text, ...) \
  ((REMAT_CHECKS < (level) || (condition))            \
       ? static_cast<void>(0)                         \
       : ::remat::checks::fail({__FILE__, __LINE__, text, #__VA_ARGS__} __VA_OPT__(, ) __VA_ARGS__))

namespace REMAT_API remat {
namespace checks {

struct Place {
  const char* file;
  int line;
  const char* condition;
  const char* names;  ///< of the values, as they are written
};

/// `values`: separated by commas.
[[noreturn]] void fail_with(const Place& place, const std::string& values);

__extension__ typedef __int128 Integer128;
std::string text(Integer128 value);

template <class T>
std::string text(const T& value) {
  if constexpr (std::is_same_v<T, bool>) {
    return value ? "true" : "false";
  } else if constexpr (std::convertible_to<T, std::string_view>) {
    return "\"" + std::string(std::string_view(value)) + "\"";
  } else if constexpr (std::is_enum_v<T>) {
    return std::to_string(static_cast<long long>(value));
  } else if constexpr (std::is_arithmetic_v<T>) {
    return std::to_string(value);
  } else if constexpr (requires { value.index(); }) {
    return std::to_string(value.index());
  } else if constexpr (requires { value.count(); }) {
    return std::to_string(value.count());
  } else if constexpr (requires { std::string(to_string(value)); }) {
    return std::string(to_string(value));
  } else {
    return text(Integer128{value});
  }
}

/// Kept out of the macro, so that a check that holds costs a comparison and a jump.
template <class... Values>
[[noreturn, gnu::noinline, gnu::cold]] void fail(const Place& place, const Values&... values) {
  std::string all;
  ((all += (all.empty() ? "" : ", ") + text(values)), ...);
  fail_with(place, all);
}

}  // namespace checks
}  // namespace REMAT_API remat
/// @endcond
