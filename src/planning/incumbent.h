// The best plan that a planner has found so far.
#pragma once

#include <optional>
#include <string_view>

#include "planning/objective.h"
#include "remat/check.h"
#include "remat/planner.h"

namespace remat {

/// Keeps the best plan offered, by the objective, and reports improvements. Of equal ones the first stays.
class Incumbent {
 public:
  Incumbent(const Problem& problem, std::string_view planner, Limits& limits)
      : problem_(&problem), planner_(planner), limits_(&limits) {}

  /// Returns true if the plan becomes the incumbent.
  bool offer(Plan plan) {
    const Simulation cost = simulate(*problem_->graph, plan);
    return offer(std::move(plan), cost);
  }
  /// The same for a plan whose cost is known, or that should be judged by another cost.
  bool offer(Plan plan, const Simulation& cost);

  /// Nothing was offered.
  bool empty() const { return !plan_; }
  const Plan& plan() const {
    REMAT_ASSERT(plan_.has_value(), planner_);
    return *plan_;
  }
  const Simulation& cost() const {
    REMAT_ASSERT(plan_.has_value(), planner_);
    return cost_;
  }
  /// True if the plan is within the budget; never with objective peak, where any plan may be improved.
  bool fits() const { return plan_ && remat::fits(*problem_, cost_); }

  /// The planner's result; leaves the incumbent empty.
  PlanResult result(Counters counters);

 private:
  const Problem* problem_;
  std::string_view planner_;
  Limits* limits_;
  std::optional<Plan> plan_;
  Simulation cost_;
};

}  // namespace remat
