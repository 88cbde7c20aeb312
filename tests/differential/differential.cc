#include "differential/differential.h"

#include <algorithm>
#include <chrono>
#include <exception>
#include <iterator>
#include <optional>
#include <utility>

#include "differential/exact.h"
#include "differential/random_call.h"
#include "differential/random_tiny.h"
#include "helpers/reproduce.h"
#include "remat/error.h"
#include "remat/planner.h"

namespace remat::differential {
namespace {

using exact::Cost;
using exact::Sum;

/// A graph in one order, with its exact results.
struct Subject {
  const exact::Graph& tiny;
  const Graph& graph;
  OrderMode order;
  std::vector<Cost> trade_off;

  Sum least_peak() const { return trade_off.front().peak; }
  /// The least duration within the budget, or nothing.
  std::optional<Sum> optimum(Sum budget) const {
    std::optional<Sum> best;
    for (const Cost& cost : trade_off) {
      if (cost.peak <= budget) best = cost.duration;
    }
    return best;
  }
};

std::string text(Sum sum) { return exact::to_string(sum); }

std::vector<int> indices(const Plan& plan) {
  std::vector<int> steps;
  for (OpId op : plan.steps) steps.push_back(op.index());
  return steps;
}

/// The error of the plan itself, or nothing.
std::string wrong_plan(const Subject& subject, const PlanResult& result) {
  const std::vector<int> steps = indices(*result.plan);
  if (const auto broken = exact::broken_rule(subject.tiny, steps, subject.order == OrderMode::kFixed)) {
    return "the plan is not valid: " + *broken;
  }
  const Cost cost = exact::cost_of(subject.tiny, steps);
  if (cost.peak != result.cost.peak.count()) {
    return "the peak is " + text(cost.peak) + ", not " + text(result.cost.peak.count());
  }
  if (cost.duration != result.cost.duration.count()) {
    return "the duration is " + text(cost.duration) + ", not " + text(result.cost.duration.count());
  }
  return "";
}

/// The optimum of the problem, or nothing where no plan fits.
std::optional<Cost> best_cost(const Subject& subject, const Problem& problem) {
  if (problem.objective == Objective::kPeak) {
    const Cost& least = subject.trade_off.front();
    return least.peak <= problem.budget.count() ? std::optional(least) : std::nullopt;
  }
  const auto duration = subject.optimum(problem.budget.count());
  if (!duration) return std::nullopt;
  return Cost{problem.budget.count(), *duration};
}

std::string wrong_bound(const Subject& subject, const std::optional<Cost>& best, const PlanResult& result) {
  if (result.peak_bound.peak.count() > subject.least_peak()) {
    return "the bound " + result.peak_bound.argument + " on the peak is " +
           text(result.peak_bound.peak.count()) + ", the least peak " + text(subject.least_peak());
  }
  if (best && result.duration_bound.duration.count() > best->duration) {
    return "the bound " + result.duration_bound.argument + " on the duration is " +
           text(result.duration_bound.duration.count()) + ", the optimum " + text(best->duration);
  }
  return "";
}

std::string wrong_status(const Problem& problem, const std::optional<Cost>& best, const PlanResult& result) {
  const std::string status(to_string(result.status));
  if (has_plan(result) != (result.status == Status::kOptimal || result.status == Status::kFeasible) ||
      (has_plan(result) && !result.plan)) {
    return status + " without a plan";
  }
  if (result.status == Status::kInfeasible && best)
    return "infeasible, but a plan takes " + text(best->duration);
  const bool is_proof = result.status == Status::kOptimal || result.status == Status::kInfeasible;
  if (is_proof != (result.stopped_by == StoppedBy::kProof)) {
    return status + ", but stopped by " + std::string(to_string(result.stopped_by));
  }
  if (!has_plan(result)) return "";
  if (result.cost.peak > problem.budget) {
    return status + ", but the peak " + text(result.cost.peak.count()) + " is over the budget";
  }
  if (result.status != Status::kOptimal) return "";
  if (!best) return "optimal, but no plan fits";
  if (result.cost.duration.count() != best->duration) {
    return "optimal with the duration " + text(result.cost.duration.count()) + ", the optimum is " +
           text(best->duration);
  }
  if (problem.objective == Objective::kPeak && result.cost.peak.count() != best->peak) {
    return "optimal with the peak " + text(result.cost.peak.count()) + ", the least is " + text(best->peak);
  }
  return "";
}

std::string wrong_result(const Subject& subject, const Problem& problem, const PlanResult& result) {
  if (result.order != subject.order) return "the result names the other order";
  if (result.plan) {
    if (std::string wrong = wrong_plan(subject, result); !wrong.empty()) return wrong;
  }
  const std::optional<Cost> best = best_cost(subject, problem);
  if (std::string wrong = wrong_bound(subject, best, result); !wrong.empty()) return wrong;
  return wrong_status(problem, best, result);
}

void count(Tally& tally, Status status) {
  switch (status) {
    case Status::kOptimal:
      ++tally.optimal;
      break;
    case Status::kFeasible:
      ++tally.feasible;
      break;
    case Status::kInfeasible:
      ++tally.infeasible;
      break;
    case Status::kUnknown:
      ++tally.unknown;
      break;
  }
}

/// Mostly graphs with something to decide: at least two plans of which none beats the other.
exact::Graph random_subject(Random& random) {
  const bool any = random.chance(0.1);
  for (int tries = 0;; ++tries) {
    exact::Graph tiny = random_tiny(random);
    if (any || tries == 100 || exact::trade_off(tiny, true).size() > 1) return tiny;
  }
}

class Run {
 public:
  explicit Run(const Settings& settings) : settings_(settings) {}

  Report run() {
    for (number_ = settings_.first; number_ < settings_.first + settings_.graphs; ++number_) {
      Random random(settings_.seed * 0x2545f4914f6cdd1d + static_cast<std::uint64_t>(number_));
      const exact::Graph tiny = random_subject(random);
      const Graph graph = built(tiny);
      for (OrderMode order : {OrderMode::kFixed, OrderMode::kFree}) {
        visit({tiny, graph, order, exact::trade_off(tiny, order == OrderMode::kFixed)}, random);
      }
      ++report_.graphs;
    }
    return std::move(report_);
  }

 private:
  void visit(const Subject& subject, Random& random) {
    const bool is_fixed = subject.order == OrderMode::kFixed;
    const Plan known[] = {keep_all_plan(subject.graph), random_plan(subject.tiny, is_fixed, random)};
    for (const PlannerInfo& planner : planners()) {
      testing::Call call = random_call(subject, random);
      call.planner = planner.name;
      call.options.set = random_options(planner, random);
      if (random.chance(0.2)) call.problem.starts = std::span(known).first(random.chance(0.5) ? 1 : 2);
      const bool is_asked_for_peak = random.chance(0.3), has_budget = random.chance(0.5);
      if (!settings_.planner.empty() && settings_.planner != planner.name) continue;
      check(subject, call);
      if (!is_asked_for_peak) continue;
      call.problem.objective = Objective::kPeak;
      if (!has_budget) call.problem.budget = kNoBudget;
      check(subject, call);
    }
    testing::Call call = random_call(subject, random);
    call.planner = "prove_optimal";
    if (settings_.planner.empty() || settings_.planner == call.planner) check_proof(subject, call);
  }

  testing::Call random_call(const Subject& subject, Random& random) const {
    constexpr std::int64_t kWork[] = {0, 1, 30, 300, 3000, 20'000};
    testing::Call call;
    call.problem.graph = &subject.graph;
    call.problem.order = subject.order;
    call.problem.budget = random_budget(subject, random);
    call.options.seed = static_cast<std::uint64_t>(random.below(1000));
    call.options.threads = random.chance(0.02) ? 2 : 1;
    call.work_limit = kWork[random.below(std::size(kWork))];
    return call;
  }

  /// At a point of the trade-off curve, next to one, or anywhere between its ends.
  Bytes random_budget(const Subject& subject, Random& random) const {
    const auto steps = static_cast<std::int64_t>(subject.trade_off.size());
    std::int64_t bytes =
        static_cast<std::int64_t>(subject.trade_off[static_cast<std::size_t>(random.below(steps))].peak);
    if (random.chance(0.3)) bytes += random.between(-1, 1);
    if (random.chance(0.2)) {
      bytes = random.between(static_cast<std::int64_t>(subject.least_peak()),
                             static_cast<std::int64_t>(subject.trade_off.back().peak));
    }
    return Bytes(std::max<std::int64_t>(1, bytes));
  }

  void check(const Subject& subject, const testing::Call& call) {
    if (find_planner(call.planner).supports(call.problem)) return;
    Tally& tally = report_.planners[std::string(call.planner)];
    const Limits clock;
    try {
      Limits limits;
      limits.set_work(*call.work_limit);
      const PlanResult result = make_plan(call.problem, call.planner, call.options, limits);
      count(tally, result.status);
      note(tally, call, wrong_result(subject, call.problem, result));
    } catch (const UsageError& error) {
      // Options may exclude each other: lower_set_dp refuses all lower sets if there are more than
      // `max_sets`.
      if (call.options.set.size() < 2) note(tally, call, std::string("refused: ") + error.what());
    } catch (const std::exception& error) {
      note(tally, call, std::string("exception: ") + error.what());
    }
    ++tally.calls;
    tally.seconds += clock.seconds();
  }

  /// `prove_optimal` and `best_duration_bound`, from the keep-all plan or the plan of a cheap planner.
  void check_proof(const Subject& subject, const testing::Call& call) {
    const auto optimum = subject.optimum(call.problem.budget.count());
    if (!optimum) return;
    Tally& tally = report_.planners[std::string(call.planner)];
    const Limits clock;
    try {
      note(tally, call, wrong_proof(subject, call, *optimum, tally));
    } catch (const std::exception& error) {
      note(tally, call, std::string("exception: ") + error.what());
    }
    ++tally.calls;
    tally.seconds += clock.seconds();
  }

  std::string wrong_proof(const Subject& subject, const testing::Call& call, Sum optimum, Tally& tally) {
    const Bytes budget = call.problem.budget;
    Limits searching, bounding, proving;
    searching.set_work(3000);
    bounding.set_work(*call.work_limit);
    proving.set_work(*call.work_limit);
    const PlanResult known = make_plan(call.problem, "search", call.options, searching);
    const DurationBound bound =
        best_duration_bound(subject.graph, budget, subject.order,
                            has_plan(known) ? std::optional(known.cost.duration) : std::nullopt, bounding);
    if (bound.duration.count() > optimum) {
      return "best_duration_bound says " + text(bound.duration.count()) + " (" + bound.argument +
             "), the optimum is " + text(optimum);
    }
    if (!has_plan(known)) return "";
    Proof proof = prove_optimal(subject.graph, budget, subject.order, *known.plan, proving);
    PlanResult result = known;
    if (proof.plan) result.plan = std::move(proof.plan);
    result.cost = simulate(subject.graph, *result.plan);
    result.duration_bound = proof.bound;
    result.status = proof.optimal ? Status::kOptimal : Status::kFeasible;
    result.stopped_by = proof.optimal ? StoppedBy::kProof : StoppedBy::kTarget;
    count(tally, result.status);
    return wrong_result(subject, call.problem, result);
  }

  void note(Tally& tally, const testing::Call& call, const std::string& wrong) {
    if (wrong.empty()) return;
    ++tally.findings;
    report_.findings.push_back("graph " + std::to_string(number_) + " of seed " +
                               std::to_string(settings_.seed) + ", " + std::string(call.planner) + ": " +
                               wrong + "\n" + testing::reproduction(call));
  }

  const Settings& settings_;
  std::int64_t number_ = 0;
  Report report_;
};

}  // namespace

Report run(const Settings& settings) { return Run(settings).run(); }

}  // namespace remat::differential
