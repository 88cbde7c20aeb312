// How a planner compares the plans that it finds.
#pragma once

#include <tuple>

#include "remat/planner.h"

namespace remat {

/// The less the better: plans within the budget by duration, then peak; behind them, and for the least peak,
/// by peak, then duration. Those that are too long come last.
inline std::tuple<bool, Bytes, Duration, Bytes> preference(const Problem& problem, const Simulation& cost) {
  if (cost.duration == kTooLong) return {true, kNoBudget, cost.duration, cost.peak};
  const bool fits = problem.objective == Objective::kTime && cost.peak <= problem.budget;
  return {!fits, fits ? Bytes() : cost.peak, cost.duration, cost.peak};
}

}  // namespace remat
