// Checkmate (Jain et al. 2020) as an integer program, solved by HiGHS.
#pragma once

#include <string>

#include "remat/planner.h"

namespace remat::checkmate_milp {

/// Described by the table in checkmate_milp.cc.
struct Options {
  std::string warm_start = "search";
  std::string rows = "both";
  double gap = 0;
};

PlannerInfo info();

}  // namespace remat::checkmate_milp
