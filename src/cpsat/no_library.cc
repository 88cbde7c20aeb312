// Replaces library.cc in builds without CP-SAT (REMAT_CPSAT=OFF): never looks for the library.
#include "cpsat/library.h"

namespace remat::cpsat {

const Library* library() { return nullptr; }

std::optional<std::string> unavailable() {
  return "this build of Remat is without CP-SAT (-DREMAT_CPSAT=OFF)";
}

}  // namespace remat::cpsat
