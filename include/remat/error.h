// The one exception of the library's borders (files, builders, options).
#pragma once

#include <stdexcept>
#include <string>

#include "remat/export.h"

namespace REMAT_API remat {

/// Bad input. `what()` is one line that names the place (file, line and column, or op and value) and,
/// where two numbers disagree, both of them.
class InputError : public std::runtime_error {
 public:
  explicit InputError(const std::string& message) : std::runtime_error(message) {}
};

/// A planner or option that does not exist, or an option with a value it cannot take.
class UsageError : public InputError {
 public:
  using InputError::InputError;
};

}  // namespace REMAT_API remat
