// What refused calls say.
#pragma once

#include <string>

#include "remat/error.h"

namespace remat::testing {

/// The message of the UsageError that `run` throws, or nothing where it throws none.
std::string usage_error(auto&& run) {
  try {
    run();
  } catch (const UsageError& error) {
    return error.what();
  }
  return "";
}

}  // namespace remat::testing
