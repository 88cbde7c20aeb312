// Planning from stored plans.
#include "remat/store.h"

namespace remat {

PlanResult make_plan_from(PlanStore& store, const Problem& problem, std::string_view planner,
                          const PlanOptions& options, Limits& limits) {
  const Graph& graph = *problem.graph;
  const Bytes budget = problem.objective == Objective::kPeak ? Bytes() : problem.budget;
  const std::vector<Plan> starts = store.around(graph, problem.order, budget);
  Problem known = problem;
  known.starts = starts;
  PlanResult result = make_plan(known, planner, options, limits);
  if (result.plan) store.add(graph, problem.order, *result.plan);
  return result;
}

}  // namespace remat
