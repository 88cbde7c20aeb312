#include "planning/incumbent.h"

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

}  // namespace remat
