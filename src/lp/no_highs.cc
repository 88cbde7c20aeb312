// Replaces highs.cc in builds without HiGHS (REMAT_HIGHS=OFF).
#include "lp/highs.h"

namespace remat::lp {

std::optional<std::string> unavailable() {
  return "this build of Remat is without HiGHS (-DREMAT_HIGHS=OFF)";
}

Solution solve(const Model&, const Settings&, Limits&) { return {}; }

struct Program::State {};
Program::Program(Model, const Settings&) {}
Program::~Program() = default;
Solution Program::advance(Limits&) { return {}; }

struct Relaxation::State {};
Relaxation::Relaxation(const Model&) {}
Relaxation::~Relaxation() = default;
void Relaxation::update(Column) {}
void Relaxation::add_rows() {}
Solution Relaxation::solve(Limits&) { return {}; }

}  // namespace remat::lp
