// Optimal persistent checkpointing of training graphs that are chains (Beaumont et al. 2019).
#pragma once

#include <string>

#include "remat/planner.h"

namespace remat::rotor {

/// Described by the table in rotor.cc.
struct Options {
  std::int64_t slots = 500;
  std::int64_t stages = 1000;
  std::string costs = "given";
  bool buy_back = true;
  bool first = false;
};

PlannerInfo info();

}  // namespace remat::rotor
