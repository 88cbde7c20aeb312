#include "remat/layout.h"

namespace remat {

PlanBuffers plan_buffers(const Graph& graph, const Plan& plan, std::int64_t alignment) {
  PlanBuffers result;
  result.problem.alignment = alignment;
  result.resident = graph.resident;
  const auto add = [&](Buffer buffer, PlanBuffer what) {
    if (buffer.size == Bytes()) return;
    result.problem.buffers.push_back(buffer);
    result.what.push_back(what);
  };
  for (const InstanceLife& life : instance_lives(graph, plan)) {
    add({life.first.index(), life.end.index(), graph.bytes[life.value]}, {life.value, life.first});
  }
  for (StepId step : plan.steps.ids()) {
    const Bytes workspace = graph.workspace[plan.steps[step]];
    add({step.index(), step.index() + 1, workspace}, {ValueId(), step});
  }
  return result;
}

}  // namespace remat
