#pragma once

#include <cstdlib>

namespace remat::testing {

/// Is this `make test-long`, which takes its time? `make test` draws and solves less of the same kinds.
inline bool is_long() { return std::getenv("REMAT_LONG") != nullptr; }

}  // namespace remat::testing
