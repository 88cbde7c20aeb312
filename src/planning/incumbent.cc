#include "planning/incumbent.h"

#include <utility>

#include "remat/check.h"

namespace remat {

bool Incumbent::offer(Plan plan, const Simulation& cost) {
  if (plan_ && preference(*problem_, cost) >= preference(*problem_, cost_)) return false;
  plan_ = std::move(plan);
  cost_ = cost;
  limits_->report(
      {std::string(planner_), limits_->seconds(), cost.peak, cost.duration, within_budget(*problem_, cost)});
  end_if_good_enough(*problem_, cost, *limits_);
  return true;
}

PlanResult Incumbent::result(Counters counters) {
  // The peak may differ: it may be that of an arena. With a host, copies may take time.
  REMAT_ASSERT_HEAVY(
      !plan_ || problem_->host || simulate(*problem_->graph, *plan_).duration == cost_.duration, planner_,
      cost_.duration);
  REMAT_ASSERT_HEAVY(
      !plan_ || cost_.duration == kTooLong || !validate(*problem_->graph, *plan_, problem_->order), planner_,
      plan_->steps.size());
  PlanResult result;
  result.plan = std::exchange(plan_, std::nullopt);
  result.counters = std::move(counters);
  return result;
}

}  // namespace remat
