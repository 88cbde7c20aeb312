#pragma once

#include <cstdlib>

namespace remat::testing {

/// Is this `make test-long`? `make test` runs fewer of the same random cases.
inline bool is_long() { return std::getenv("REMAT_LONG") != nullptr; }

}  // namespace remat::testing
