#include "planners/auto/auto.h"

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "planners/auto/options.h"
#include "planners/auto/schedule.h"
#include "planners/offload/offload.h"

namespace remat::automatic {
namespace {

/// Joint plans first, then the best plan without copies, as if there were no host; the better one.
PlanResult run_with_host(const Problem& problem, const PlanOptions& options, Limits& limits) {
  constexpr double kJoint = 0.9;
  const bool joint = problem.objective == Objective::kTime && problem.order == OrderMode::kFixed;
  PlanResult best;
  std::vector<LogEntry> log;
  if (joint) {
    Limits part(limits, kJoint);
    best = make_plan_with(
        problem, "offload",
        [&](const Problem& bounded, Limits& inner) {
          return offload::plan_with_host(bounded, options, inner);
        },
        part);
    LogEntry& entry = log.emplace_back();
    entry.seconds = limits.outermost().seconds();
    entry.work = part.work();
    entry.arm = "offload";
    if (best.plan) entry.after = LoggedPlan{best.cost.duration, best.cost.peak, has_plan(best)};
    entry.bound = best.duration_bound.duration;
    best.log = log;
    if (best.status == Status::kOptimal || best.status == Status::kInfeasible) return best;
  }
  Problem plain = problem;
  plain.host.reset();
  plain.peak_bound = nullptr;
  plain.duration_bound = nullptr;
  PlanResult without = make_plan_with(
      plain, "auto",
      [&](const Problem& bounded, Limits& inner) { return run_schedule(bounded, options, inner); }, limits);
  log.insert(log.end(), without.log.begin(), without.log.end());
  PlanResult& found = better(problem, without, best) ? without : best;
  found.log = std::move(log);
  return std::move(found);
}

PlanResult run(const Problem& problem, const PlanOptions& options, Limits& limits) {
  if (problem.host) return run_with_host(problem, options, limits);
  return run_schedule(problem, options, limits);
}

}  // namespace

PlannerInfo info() {
  return {"auto",
          "cheap planners first, then search from their plans, and proofs where they are within reach",
          "a valid plan; optimal or infeasible only where proved",
          "Remat",
          [](const Problem&) -> std::optional<std::string> { return std::nullopt; },
          run,
          true,
          table().list()};
}

}  // namespace remat::automatic
