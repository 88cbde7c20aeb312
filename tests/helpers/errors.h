// Messages of refused calls.
#pragma once

#include <string>

#include "remat/error.h"

namespace remat::testing {

/// The message of the error of this type that `run` throws, or nothing.
template <class Error>
std::string error_of(auto&& run) {
  try {
    run();
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

std::string usage_error(auto&& run) { return error_of<UsageError>(run); }

}  // namespace remat::testing
