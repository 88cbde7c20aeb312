// Checkmate's relaxation and two-phase rounding (Jain et al. 2020, section 5).
#pragma once

#include "remat/planner.h"

namespace remat::checkmate_lp {

struct Options {
  double threshold = 0;  ///< what is held at least this much is held; 0: try 0.1, 0.2, ... 0.9
  bool shrink = true;    ///< also the relaxation at nine tenths of the memory beyond the resident inputs
};

PlannerInfo info();

}  // namespace remat::checkmate_lp
