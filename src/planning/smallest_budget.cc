// The smallest known budget, for users whose budget is too small.
#include <algorithm>

#include "remat/check.h"
#include "remat/planner.h"
#include "remat/store.h"

namespace remat {

std::optional<Bytes> smallest_known_budget(const Problem& problem, const PlanResult& result,
                                           const PlanOptions& options, Limits& limits, PlanStore* store) {
  constexpr double kShare = 0.25, kMostSeconds = 5;
  std::optional<Bytes> smallest;
  if (result.plan) smallest = result.cost.peak;
  Limits short_limits(limits, kShare);
  short_limits.set_time(std::min(kMostSeconds, short_limits.seconds_left().value_or(kMostSeconds)));
  Problem least = problem;
  least.objective = Objective::kPeak;
  least.budget = kNoBudget;
  const PlanOptions plain{options.seed, options.threads, {}};
  const PlanResult found = store ? make_plan_from(*store, least, "auto", plain, short_limits)
                                 : make_plan(least, "auto", plain, short_limits);
  if (found.plan && (!smallest || found.cost.peak < *smallest)) smallest = found.cost.peak;
  REMAT_ASSERT(!smallest || *smallest >= found.peak_bound.peak, *smallest, found.peak_bound.peak);
  return smallest;
}

}  // namespace remat
