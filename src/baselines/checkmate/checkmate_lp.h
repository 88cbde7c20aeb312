// Checkmate's relaxation and two-phase rounding (Jain et al. 2020, section 5).
#pragma once

#include "remat/planner.h"

namespace remat::checkmate_lp {

/// Described by the table in checkmate_lp.cc.
struct Options {
  double threshold = 0;
  bool shrink = true;
};

PlannerInfo info();

}  // namespace remat::checkmate_lp
