// The shared entry point: bounds first, then the planner, then a check of its result.
#include <stdexcept>

#include "base/numbers.h"
#include "bounds/cheap.h"
#include "bounds/host.h"
#include "planning/objective.h"
#include "planning/options.h"
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
  return real(result.cost.duration.count() - bound) / real(bound);
}

std::optional<double> gap(const LogEntry& entry) {
  if (!entry.after || !entry.after->within_budget) return std::nullopt;
  PlanResult result;
  result.cost.duration = entry.after->duration;
  result.duration_bound.duration = entry.bound;
  return gap(result);
}

bool better(const Problem& problem, const PlanResult& a, const PlanResult& b) {
  if (!a.plan || !b.plan) return a.plan.has_value() && !b.plan.has_value();
  return preference(problem, a.cost) < preference(problem, b.cost);
}

void mark_known(PlanResult& result) {
  result.known = true;
  result.planner = "known";
}

namespace {

constexpr double kBoundShare = 0.25;  // of the time, for the cheap duration bounds

std::string text_of(Bytes bytes) { return std::to_string(bytes.count()); }
std::string text_of(Duration duration) { return std::to_string(duration.count()); }

/// Checks every plan before it is returned against the planner's and the bounds' claims. `whose`: "planner
/// NAME returned a plan".
void confirm(const Problem& problem, PlanResult& result, const std::string& whose) {
  const Graph& graph = *problem.graph;
  const auto fail = [&](const std::string& what) { throw std::logic_error(whose + " that " + what); };
  const Host* host = problem.host ? &*problem.host : nullptr;
  // Without the host's budget: a plan over it is valid, only over a budget.
  if (const auto violation = validate(graph, *result.plan, problem.order, std::nullopt, nullptr)) {
    if (violation->rule != Rule::kDuration) fail("breaks " + violation->message);
    // Longer than plans may be: keep-all, the fastest plan, replaces it.
    result.plan = keep_all_plan(graph);
    result.planner = "keep_all";
    if (result.status == Status::kOptimal) result.status = Status::kFeasible;
  }
  result.cost = simulate(graph, *result.plan, host);
  if (result.cost.peak < result.peak_bound.peak) {
    fail("has the peak " + text_of(result.cost.peak) + ", below the bound " + result.peak_bound.argument +
         " of " + text_of(result.peak_bound.peak));
  }
  if (!within_budget(problem, result.cost)) return;
  if (result.cost.duration < result.duration_bound.duration) {
    fail("takes " + text_of(result.cost.duration) + ", below the bound " + result.duration_bound.argument +
         " of " + text_of(result.duration_bound.duration));
  }
  if (result.status == Status::kInfeasible) {
    fail("has the peak " + text_of(result.cost.peak) + ", within the budget of " + text_of(problem.budget) +
         " that was called infeasible");
  }
}

/// Derives the status from the plan and the bounds; a planner may have proved more.
void settle(const Problem& problem, PlanResult& result) {
  const bool by_peak = problem.objective == Objective::kPeak;
  const bool proved = by_peak ? result.cost.peak == result.peak_bound.peak &&
                                    result.cost.duration == problem.graph->base_duration
                              : result.cost.duration == result.duration_bound.duration;
  if (within_budget(problem, result.cost)) {
    const bool optimal = proved || result.status == Status::kOptimal;
    result.status = optimal ? Status::kOptimal : Status::kFeasible;
  } else {
    // The proved least peak is over the budget.
    const bool least = by_peak && result.status == Status::kOptimal;
    const bool refuted = least || result.status == Status::kInfeasible;
    result.status = refuted ? Status::kInfeasible : Status::kUnknown;
  }
  if (result.status == Status::kOptimal) result.stopped_by = StoppedBy::kProof;
}

/// A planner may have stopped by an argument of its own that does not prove the status.
void claim_proof_only_where_proved(PlanResult& result) {
  const bool is_proved = result.status == Status::kOptimal || result.status == Status::kInfeasible;
  if (!is_proved && result.stopped_by == StoppedBy::kProof) result.stopped_by = StoppedBy::kTarget;
}

/// Keeps the best of the planner's plan and the starts. These also reveal a planner that calls a feasible
/// budget infeasible.
void consider_starts(const Problem& problem, PlanResult& result) {
  for (const Plan& start : problem.starts) {
    if (total_duration(*problem.graph, start) >= Wide{kTooLong.count()}) continue;
    PlanResult known = result;
    known.plan = start;
    confirm(problem, known, "planner " + result.planner + " was given a start");
    if (result.status == Status::kInfeasible) continue;
    known.status = Status::kUnknown;
    settle(problem, known);
    if (!better(problem, known, result)) continue;
    mark_known(known);
    result = std::move(known);
  }
}

/// The planner's answer, or the one that the bounds already give.
PlanResult answer(const Problem& bounded, const std::function<PlanResult(const Problem&, Limits&)>& run,
                  Limits& limits) {
  PlanResult result;
  if (bounded.budget < bounded.peak_bound->peak) {
    result.status = Status::kInfeasible;
    result.stopped_by = StoppedBy::kProof;
    return result;
  }
  if (limits.reached()) {  // planners work for some time before their first check of the limits
    result.plan = keep_all_plan(*bounded.graph);
    result.stopped_by = *limits.stopped_by();
    return result;
  }
  result = run(bounded, limits);
  if (result.stopped_by == StoppedBy::kTarget) {
    result.stopped_by = limits.stopped_by().value_or(StoppedBy::kTarget);
  }
  return result;
}

}  // namespace

namespace {

PeakBound peak_bound_of(const Problem& problem) {
  if (problem.peak_bound) return *problem.peak_bound;
  return problem.host ? host_peak_bound(*problem.graph) : best_peak_bound(*problem.graph, problem.order);
}

DurationBound duration_bound_of(const Problem& problem, Limits& limits) {
  if (problem.duration_bound) return *problem.duration_bound;
  const Graph& graph = *problem.graph;
  return problem.host ? host_duration_bound(graph, problem.budget, problem.order, *problem.host, limits)
                      : cheap_duration_bound(graph, problem.budget, problem.order, limits);
}

/// A planner's proofs are about plans without copies.
void forget_proofs(PlanResult& result) {
  result.peak_bound = {};
  result.duration_bound = {};
  if (result.status == Status::kOptimal) result.status = Status::kFeasible;
  if (result.status == Status::kInfeasible) result.status = Status::kUnknown;
}

}  // namespace

PlanResult make_plan(const Problem& problem, std::string_view name, const PlanOptions& options,
                     Limits& limits) {
  const PlannerInfo& planner = find_planner(name);
  check_options(planner, options);
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
  if (problem.host) require_time_unit(graph);
  const Limits clock;
  Problem bounded = problem;
  const PeakBound peak_bound = peak_bound_of(problem);
  bounded.peak_bound = &peak_bound;
  DurationBound duration_bound{"base", graph.base_duration};
  if (problem.objective == Objective::kTime && problem.budget >= peak_bound.peak) {
    Limits share(limits, kBoundShare);
    duration_bound = duration_bound_of(problem, share);
    bounded.duration_bound = &duration_bound;
  }
  PlanResult result = answer(bounded, run, limits);
  if (result.planner.empty()) result.planner = name;
  result.order = problem.order;
  if (problem.host && problem.budget >= peak_bound.peak) forget_proofs(result);
  if (peak_bound.peak >= result.peak_bound.peak) result.peak_bound = peak_bound;
  if (duration_bound.duration >= result.duration_bound.duration) result.duration_bound = duration_bound;
  if (result.plan) {
    confirm(problem, result, "planner " + result.planner + " returned a plan");
    settle(problem, result);
  } else if (has_plan(result)) {
    throw std::logic_error("planner " + result.planner + " returned the status " +
                           std::string(to_string(result.status)) + " without a plan");
  }
  consider_starts(problem, result);
  claim_proof_only_where_proved(result);
  result.seconds = clock.seconds();
  return result;
}

}  // namespace remat
