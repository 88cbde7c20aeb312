// What to tell those whose budget is too small.
#include <algorithm>

#include "remat/planner.h"

namespace remat {

std::optional<Bytes> smallest_known_budget(const Problem& problem, const PlanResult& result,
                                           const PlanOptions& options, Limits& limits) {
  constexpr double kShare = 0.25, kMostSeconds = 5;
  std::optional<Bytes> smallest;
  if (result.plan) smallest = result.cost.peak;
  Limits short_limits(limits, kShare);
  short_limits.set_time(std::min(kMostSeconds, short_limits.seconds_left().value_or(kMostSeconds)));
  Problem least = problem;
  least.objective = Objective::kPeak;
  least.budget = kNoBudget;
  const PlanResult found =
      make_plan(least, "auto", PlanOptions{options.seed, options.threads, {}}, short_limits);
  if (found.plan && (!smallest || found.cost.peak < *smallest)) smallest = found.cost.peak;
  return smallest;
}

}  // namespace remat
