// Plan and allocator together.
#include "planning/footprint.h"
#include "remat/error.h"
#include "remat/reserved.h"

namespace remat {

ReservedPlan make_reserved_plan(const Problem& problem, std::string_view planner, const PlanOptions& options,
                                const AllocatorConfig& allocator, Limits& limits) {
  if (problem.objective != Objective::kTime) {
    throw UsageError("a budget on reserved bytes goes with objective time only");
  }
  if (problem.host) throw UsageError("a budget on reserved bytes and a host do not go together");
  Graph rounded = rounded_up(*problem.graph, true, "blocks",
                             [&](Bytes size) { return Wide{rounded_request(allocator, size).count()}; });
  const auto run = [&](const PlanResult& result, Limits&) {
    return ReservedPlan{result, simulate_allocator(*problem.graph, *result.plan, allocator), 0};
  };
  return FootprintSearch<ReservedPlan>(problem, planner, options, std::move(rounded), run, limits).run();
}

}  // namespace remat
