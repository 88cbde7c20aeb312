#pragma once

#include <cstdlib>

namespace remat::testing {

/// Is this `make test-long`? `make test` runs fewer of the same random cases.
inline bool is_long() { return std::getenv("REMAT_LONG") != nullptr; }

/// How many random cases a test draws.
inline int draws(int usual, int in_long) { return is_long() ? in_long : usual; }

}  // namespace remat::testing
