// Plan and layout together: the layout says by how much a plan's live bytes must shrink.
#include "planning/footprint.h"
#include "remat/arena.h"
#include "remat/error.h"

namespace remat {

ArenaPlan make_arena_plan(const Problem& problem, std::string_view planner, const PlanOptions& options,
                          std::int64_t alignment, Limits& limits) {
  if (problem.objective != Objective::kTime) {
    throw UsageError("a budget on the arena goes with objective time only");
  }
  if (alignment < 1 || alignment >= kMaxCount) {
    throw UsageError("alignment " + std::to_string(alignment) + " is outside [1, 2^62)");
  }
  // Graph inputs are not laid out.
  Graph rounded =
      rounded_up(*problem.graph, false, "the alignment " + std::to_string(alignment),
                 [&](Bytes size) { return (Wide{size.count()} + alignment - 1) / alignment * alignment; });
  const auto laid_out = [&](const PlanResult& result, Limits& inner) {
    ArenaPlan plan{result, plan_buffers(*problem.graph, *result.plan, alignment), {}, 0};
    plan.buffers.problem.capacity = problem.budget - plan.buffers.resident;
    LayoutOptions layout;
    layout.seed = options.seed;
    plan.layout = make_layout(plan.buffers.problem, layout, inner);
    return plan;
  };
  return FootprintSearch<ArenaPlan>(problem, planner, options, std::move(rounded), laid_out, limits).run();
}

LayoutResult glance_layout(const LayoutProblem& problem) {
  constexpr std::int64_t kWork = 50'000;
  Limits limits;
  limits.set_work(kWork);
  return make_layout(problem, {}, limits);
}

}  // namespace remat
