#include "planners/auto/auto.h"

#include "planners/options.h"

namespace remat::automatic {
namespace {

PlanResult run(const Problem& problem, const PlanOptions& options, Limits& limits) {
  OptionReader(options, "auto").finish();
  std::optional<PlanResult> best;
  std::optional<StoppedBy> stopped;
  for (const PlannerInfo& planner : planners()) {
    if (planner.name == "auto" || planner.supports(problem)) continue;
    if (best && limits.reached()) break;
    Limits share(limits, 1.0);
    PlanResult result = make_plan(problem, planner.name, PlanOptions{options.seed, options.threads, {}}, share);
    if (!best || better(problem, result, *best)) best = std::move(result);
    if (best->status == Status::kOptimal || best->status == Status::kInfeasible) break;
  }
  if (const auto reason = limits.stopped_by(); reason && best->stopped_by != StoppedBy::kProof) {
    best->stopped_by = *reason;
  }
  return std::move(*best);
}

}  // namespace

PlannerInfo info() {
  return {"auto",
          "runs every planner that supports the problem and keeps the best plan",
          "never worse than any planner it runs at the same limit",
          "Remat",
          [](const Problem&) -> std::optional<std::string> { return std::nullopt; },
          run};
}

}  // namespace remat::automatic
