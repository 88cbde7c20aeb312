// NoRemat (Kumar et al., section 4): every op once, in the graph's order.
#include "remat/planner.h"

namespace remat::keep_all {
namespace {

PlanResult run(const Problem& problem, const PlanOptions&, Limits&) {
  PlanResult result;
  result.plan = keep_all_plan(*problem.graph);
  return result;
}

}  // namespace

PlannerInfo info() {
  return {.name = "keep_all",
          .description = "every op once, in the graph's order",
          .guarantee = "least duration; fits only where the budget reaches the keep-all peak",
          .source = "Kumar et al. 2019 (NoRemat)",
          .run = run};
}

}  // namespace remat::keep_all
