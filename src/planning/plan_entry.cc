// The shared entry point: bounds first, then the planner, then the check that nothing leaves unconfirmed.
#include <stdexcept>
#include <tuple>

#include "bounds/cheap.h"
#include "remat/error.h"
#include "remat/planner.h"

namespace remat {

std::string_view to_string(Objective objective) { return objective == Objective::kTime ? "time" : "peak"; }

std::string_view to_string(Status status) {
  switch (status) {
    case Status::kOptimal:
      return "optimal";
    case Status::kFeasible:
      return "feasible";
    case Status::kInfeasible:
      return "infeasible";
    case Status::kUnknown:
      return "unknown";
  }
  return "";
}

double gap(const PlanResult& result) {
  const auto bound = result.duration_bound.duration.count();
  if (bound <= 0) return 0.0;
  return static_cast<double>(result.cost.duration.count() - bound) / static_cast<double>(bound);
}

bool better(const Problem& problem, const PlanResult& a, const PlanResult& b) {
  if (!a.plan || !b.plan) return a.plan.has_value() && !b.plan.has_value();
  const auto key = [&](const PlanResult& r) {
    const bool by_peak = problem.objective == Objective::kPeak || r.cost.peak > problem.budget;
    return std::tuple(!has_plan(r), r.cost.duration == kTooLong, by_peak ? r.cost.peak : Bytes(),
                      r.cost.duration, r.cost.peak);
  };
  return key(a) < key(b);
}

namespace {

constexpr double kBoundShare = 0.25;  // of the time, for the cheap duration bounds

void confirm(const Problem& problem, PlanResult& result, std::string_view planner) {
  const Graph& graph = *problem.graph;
  const auto fail = [&](const std::string& what) {
    throw std::logic_error("planner " + std::string(planner) + " returned a plan that " + what);
  };
  if (const auto violation = validate(graph, *result.plan, problem.order)) {
    if (violation->rule != Rule::kDuration) fail("breaks " + violation->message);
    // Longer than a plan may be: what is left is the fastest of all.
    result.plan = keep_all_plan(graph);
    result.planner = "keep_all";
    if (result.status == Status::kOptimal) result.status = Status::kFeasible;
  }
  result.cost = simulate(graph, *result.plan);
  if (result.cost.peak < result.peak_bound.peak) {
    fail("has the peak " + std::to_string(result.cost.peak.count()) + ", below the bound " +
         result.peak_bound.argument + " of " + std::to_string(result.peak_bound.peak.count()));
  }
  if (result.cost.duration < result.duration_bound.duration && result.cost.peak <= problem.budget) {
    fail("takes " + std::to_string(result.cost.duration.count()) + ", below the bound " +
         result.duration_bound.argument + " of " + std::to_string(result.duration_bound.duration.count()));
  }
}

/// Status from what the plan is and what the bounds prove; a planner may have proved more.
void settle(const Problem& problem, PlanResult& result) {
  if (result.cost.peak > problem.budget) {
    if (result.status != Status::kInfeasible) result.status = Status::kUnknown;
    return;
  }
  const bool proved = problem.objective == Objective::kTime
                          ? result.cost.duration == result.duration_bound.duration
                          : result.cost.peak == result.peak_bound.peak &&
                                result.cost.duration == problem.graph->base_duration;
  if (proved) result.status = Status::kOptimal;
  if (result.status != Status::kOptimal) result.status = Status::kFeasible;
  if (result.status == Status::kOptimal) result.stopped_by = StoppedBy::kProof;
}

/// A planner may have ended by an argument of its own that proves less than the status says.
void name_only_proofs(PlanResult& result) {
  const bool is_proved = result.status == Status::kOptimal || result.status == Status::kInfeasible;
  if (!is_proved && result.stopped_by == StoppedBy::kProof) result.stopped_by = StoppedBy::kTarget;
}

/// Keeps the best of the planner's plan and the plans known before.
void consider_starts(const Problem& problem, PlanResult& result) {
  for (const Plan& start : problem.starts) {
    if (total_duration(*problem.graph, start) >= Wide{kTooLong.count()}) continue;
    PlanResult known = result;
    known.plan = start;
    confirm(problem, known, "known before");
    known.status = Status::kUnknown;
    settle(problem, known);
    if (!better(problem, known, result)) continue;
    known.planner = "known";
    result = std::move(known);
  }
}

}  // namespace

PlanResult make_plan(const Problem& problem, std::string_view name, const PlanOptions& options,
                     Limits& limits) {
  const PlannerInfo& planner = find_planner(name);
  if (const auto reason = planner.supports(problem)) {
    throw UsageError("planner " + std::string(name) + " does not support this problem: " + *reason);
  }
  return make_plan_with(
      problem, name,
      [&](const Problem& bounded, Limits& inner) { return planner.run(bounded, options, inner); }, limits);
}

PlanResult make_plan_with(const Problem& problem, std::string_view name,
                          const std::function<PlanResult(const Problem&, Limits&)>& run, Limits& limits) {
  const Graph& graph = *problem.graph;
  const Limits clock;
  const PeakBound peak_bound =
      problem.peak_bound ? *problem.peak_bound : best_peak_bound(graph, problem.order);
  PlanResult result;
  DurationBound cheap{"base", graph.base_duration};
  if (problem.budget < peak_bound.peak) {
    result.status = Status::kInfeasible;
    result.stopped_by = StoppedBy::kProof;
  } else {
    Problem bounded = problem;
    bounded.peak_bound = &peak_bound;
    if (problem.objective == Objective::kTime) {
      Limits share(limits, kBoundShare);
      cheap = problem.duration_bound ? *problem.duration_bound
                                     : cheap_duration_bound(graph, problem.budget, problem.order, share);
      bounded.duration_bound = &cheap;
    }
    result = run(bounded, limits);
  }
  if (result.planner.empty()) result.planner = name;
  result.order = problem.order;
  if (peak_bound.peak >= result.peak_bound.peak) result.peak_bound = peak_bound;
  if (cheap.duration >= result.duration_bound.duration) result.duration_bound = std::move(cheap);
  if (result.plan) {
    confirm(problem, result, result.planner);
    settle(problem, result);
  }
  if (result.status != Status::kInfeasible) consider_starts(problem, result);
  name_only_proofs(result);
  result.seconds = clock.seconds();
  return result;
}

}  // namespace remat
