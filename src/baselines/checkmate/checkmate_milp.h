// Checkmate (Jain et al. 2020) as an integer program, solved by HiGHS.
#pragma once

#include <string>

#include "remat/planner.h"

namespace remat::checkmate_milp {

struct Options {
  std::string warm_start = "search";  ///< a registered planner whose plan bounds the model, or "none"
  /// "both": first the relaxation that holds for reruns in any order, whose bound is one for every plan in
  /// fixed order; then, where its plan does not fit, Checkmate's own rows. "checkmate": only those.
  std::string rows = "both";
  double gap = 0;  ///< of the duration beyond one run of each op: where to stop without a proof
};

PlannerInfo info();

}  // namespace remat::checkmate_milp
