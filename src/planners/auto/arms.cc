#include "planners/auto/arms.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "base/numbers.h"
#include "planners/search/search.h"
#include "planning/objective.h"
#include "remat/keep_all.h"

namespace remat::automatic {

bool Arms::is_good_enough() const {
  return best_.plan && remat::is_good_enough(problem_, best_.cost, best_.duration_bound.duration, limits_);
}

bool Arms::done() const {
  return best_.status == Status::kOptimal || best_.status == Status::kInfeasible ||
         (best_.plan && round_limits_->reached()) || is_good_enough();
}

double Arms::gain(std::string_view planner) const {
  const auto found = gains_.find(planner);
  return found == gains_.end() ? 0 : found->second;
}

std::vector<Plan> Arms::starts(const Call& call) const {
  std::vector<Plan> plans;
  if (call.starts == Call::kNone) return plans;
  if (!best_.plan) return {problem_.starts.begin(), problem_.starts.end()};
  if (call.starts == Call::kBest) plans.push_back(*best_.plan);
  if (over_budget_ && has_plan()) plans.push_back(*over_budget_);
  if (order_) plans.push_back(*order_);
  return plans;
}

void Arms::plan(std::string_view name, double share, const Call& call) {
  if (done() || find_planner(name).supports(problem_)) return;
  const std::optional<LoggedPlan> before = logged();
  Limits part(*round_limits_, share);
  PlanResult result = run(name, call, part);
  if (name == "retention" && !remat::has_plan(result)) over_budget_ = result.plan;
  take(std::move(result));
  const bool had_plan = before && before->within_budget;
  const double gained = had_plan     ? real(before->duration - best_.cost.duration)
                        : has_plan() ? std::numeric_limits<double>::max()
                                     : 0;
  constexpr double kLeastSpent = 1e-6;
  const double spent = limits_.has_work_limit() ? real(part.work()) : part.seconds();
  gains_[std::string(name)] = gained / std::max(kLeastSpent, spent);
  last_ = name;
  log(std::string(name) + std::string(call.purpose), before, part);
}

void Arms::find_order(double share) {
  if (done()) return;
  const std::optional<LoggedPlan> before = logged();
  Limits part(*round_limits_, share);
  PlanResult result = run("search", {.set = search::only_first_runs(), .starts = Call::kNone}, part);
  has_gained_by_order_ = result.plan && result.cost.peak < keep_all_peak(*problem_.graph);
  if (remat::has_plan(result)) {
    take(std::move(result));
  } else if (has_gained_by_order_) {
    order_ = std::move(result.plan);
  }
  log("search_for_order", before, part);
}

PlanResult Arms::run(std::string_view name, const Call& call, Limits& part) {
  Problem problem = problem_;
  const std::vector<Plan> known = starts(call);
  problem.starts = known;
  // A second call of the same planner must not walk the same way.
  const PlanOptions options{options_.seed + calls_++, options_.threads, call.set};
  const PlannerInfo& planner = find_planner(name);
  return make_plan_with(
      problem, planner.name,
      [&](Problem bounded, Limits& inner) {
        std::vector<Plan> valid;
        if (call.order && *call.order != problem.order) {  // a plan of free order may not be one of fixed
          std::ranges::copy_if(known, std::back_inserter(valid), [&](const Plan& start) {
            return !validate(*problem.graph, start, *call.order);
          });
          bounded.starts = valid;
          bounded.order = *call.order;
        }
        bounded.objective = call.objective.value_or(problem.objective);
        if (bounded.objective == Objective::kPeak) bounded.budget = kNoBudget;
        return planner.run(bounded, options, inner);
      },
      part);
}

/// What was proved before stays proved.
void Arms::take(PlanResult result) {
  if (result.known && best_.plan) {
    result.planner = best_.planner;
    result.known = best_.known;
  }
  if (best_.plan && best_.duration_bound.duration > result.duration_bound.duration) {
    result.duration_bound = best_.duration_bound;
  }
  if (!best_.plan || better(problem_, result, best_) || result.status == Status::kInfeasible) {
    best_ = std::move(result);
    report();
    return note_proof();
  }
  best_.counters = std::move(result.counters);
  if (best_.status != Status::kOptimal) best_.stopped_by = result.stopped_by;
}

void Arms::raise_bound(double share) {
  if (done() || !has_plan()) return;
  const std::optional<LoggedPlan> before = logged();
  Limits part(*round_limits_, share);
  DurationBound proved = best_.duration_bound;
  std::optional<Plan> faster = moments_.raise(best_.cost.duration, part, proved);
  take(std::move(faster), std::move(proved));
  log("bound", before, part);
}

/// Of an integer program.
void Arms::take(std::optional<Plan> faster, DurationBound bound) {
  if (faster) {
    best_.plan = std::move(faster);
    best_.cost = simulate(*problem_.graph, *best_.plan);
    best_.planner = "stage_milp";
    report();
  }
  if (bound.duration > best_.duration_bound.duration) best_.duration_bound = std::move(bound);
  note_proof();
}

/// A plan may meet a bound that another arm proved.
void Arms::note_proof() {
  const bool is_met = problem_.objective == Objective::kTime && has_plan() &&
                      best_.cost.duration == best_.duration_bound.duration;
  if (!is_met) return;
  best_.status = Status::kOptimal;
  best_.stopped_by = StoppedBy::kProof;
}

void Arms::report() const {
  if (!best_.plan) return;
  limits_.report({best_.planner, limits_.seconds(), best_.cost.peak, best_.cost.duration, has_plan()});
}

std::optional<LoggedPlan> Arms::logged() const {
  if (!best_.plan) return std::nullopt;
  return LoggedPlan{best_.cost.duration, best_.cost.peak, has_plan()};
}

void Arms::log(std::string arm, std::optional<LoggedPlan> before, const Limits& part) {
  log_.push_back({limits_.outermost().seconds(), part.work(), round_, std::move(arm), before, logged(),
                  best_.duration_bound.duration});
}

PlanResult Arms::result(std::optional<StoppedBy> reason) {
  const bool is_proved = best_.status == Status::kOptimal || best_.status == Status::kInfeasible;
  if (is_good_enough()) reason = StoppedBy::kGap;
  if (reason && !is_proved) best_.stopped_by = *reason;
  best_.log = std::move(log_);
  return std::move(best_);
}

}  // namespace remat::automatic
