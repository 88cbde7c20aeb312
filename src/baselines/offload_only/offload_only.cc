// Keep or copy to the host, and nothing runs twice.
#include "planners/offload/offload.h"
#include "remat/planner.h"

namespace remat::offload_only {
namespace {

PlanResult run(const Problem& problem, const PlanOptions& options, Limits& limits) {
  Graph once = *problem.graph;
  once.recomputable.assign(once.num_ops(), false);
  Problem only = problem;
  only.graph = &once;
  return offload::plan_with_host(only, options, limits);
}

}  // namespace

PlannerInfo info() {
  return {"offload_only",
          "which values go to the host and come back, and no op runs twice",
          "a valid plan; may miss its budget",
          "Remat",
          [](const Problem& problem) -> std::optional<std::string> {
            if (!problem.host) return "it needs a host (--host 25GB/s)";
            if (problem.objective == Objective::kPeak) return "it needs a budget (objective time)";
            if (problem.order == OrderMode::kFree) return "it keeps the order of the graph";
            return std::nullopt;
          },
          run};
}

}  // namespace remat::offload_only
