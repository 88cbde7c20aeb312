// In place of library.cc where the build is to go without CP-SAT (REMAT_CPSAT=OFF): nothing is looked for or
// loaded.
#include "cpsat/library.h"

namespace remat::cpsat {

const Library* library() { return nullptr; }

std::optional<std::string> unavailable() {
  return "this build of Remat is without CP-SAT (-DREMAT_CPSAT=OFF)";
}

}  // namespace remat::cpsat
