// Optimal persistent checkpointing of training graphs that are chains (Beaumont et al. 2019).
#pragma once

#include <string>

#include "remat/planner.h"

namespace remat::rotor {

struct Options {
  std::int64_t slots = 500;     ///< the budget is cut into so many
  std::int64_t stages = 1000;   ///< longer chains are cut at fewer places
  std::string costs = "given";  ///< "unit": all stages alike and none saved ahead, which is revolve
  bool buy_back = true;         ///< erase recomputations while the budget holds
  /// Stop at the first view with a plan within the budget, unless the next takes less than half of what is
  /// left.
  bool first = false;
};

PlannerInfo info();

}  // namespace remat::rotor
