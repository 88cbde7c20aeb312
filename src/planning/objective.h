// The comparison of plans by the objective, shared by planners, entry point and command line.
#pragma once

#include <tuple>

#include "base/numbers.h"
#include "remat/planner.h"

namespace remat {

/// True if the plan is within the budget and the objective is time. Always false for objective peak, where
/// any plan may be improved.
inline bool fits(const Problem& problem, const Simulation& cost) {
  return problem.objective == Objective::kTime && within_budget(problem, cost);
}

/// Within the requested gap: planners stop here.
inline bool is_good_enough(const Problem& problem, const Simulation& cost, Duration bound,
                           const Limits& limits) {
  const auto gap = limits.gap();
  return gap && fits(problem, cost) && real((cost.duration - bound).count()) <= *gap * real(bound.count());
}

/// Called for every improved plan.
inline void end_if_good_enough(const Problem& problem, const Simulation& cost, Limits& limits) {
  if (!problem.duration_bound) return;
  if (is_good_enough(problem, cost, problem.duration_bound->duration, limits)) limits.end(StoppedBy::kGap);
}

/// Less is better. Plans that fit: by duration, then peak. Behind them, and for objective peak: by peak, then
/// duration. Too long plans come last.
inline std::tuple<bool, Bytes, Duration, Bytes> preference(const Problem& problem, const Simulation& cost) {
  if (cost.duration == kTooLong) return {true, kNoBudget, cost.duration, cost.peak};
  const bool first = fits(problem, cost);
  return {!first, first ? Bytes() : cost.peak, cost.duration, cost.peak};
}

}  // namespace remat
