// Checkmate (Jain et al. 2020) as an integer program, solved by HiGHS.
#include <algorithm>
#include <string>

#include "base/numbers.h"
#include "baselines/checkmate/stage_support.h"
#include "exact/stage_solve.h"
#include "planning/incumbent.h"
#include "planning/options.h"
#include "remat/planner.h"

namespace remat::checkmate_milp {
namespace {

struct Options {
  std::string warm_start = "search";
  std::string rows = "both";
  double gap = 0;
};

constexpr std::int64_t kMostColumns = 600'000;

/// The best plan so far, and what is proved.
class Solve {
 public:
  Solve(const Problem& problem, const Options& options, const PlanOptions& given, Limits& limits)
      : problem_(problem),
        graph_(*problem.graph),
        options_(options),
        given_(given),
        limits_(limits),
        best_(problem, "checkmate_milp", limits),
        bound_(problem.graph->base_duration) {}

  PlanResult run() {
    best_.offer(keep_all_plan(graph_));
    for (const Plan& start : problem_.starts) {
      if (!validate(graph_, start, problem_.order)) best_.offer(start);
    }
    if (options_.warm_start != "none" && !done()) warm_start();
    const bool had_plan = best_.fits();
    if (options_.rows == "both" && !done()) solve(StageRows::kAnyOrder);
    // A plan found by the first model is a cutoff for the second: only faster ones are sought.
    if (options_.rows == "both" && !had_plan && best_.fits() && !done()) solve(StageRows::kAnyOrder);
    if (!done()) solve(StageRows::kGraphOrder);
    return conclude();
  }

 private:
  double beyond(Duration d) const { return real((d - graph_.base_duration).count()); }
  /// True if the plan meets the bound on every plan in fixed order.
  bool proved() const { return best_.fits() && best_.cost().duration <= bound_; }
  /// True if proved, or within the requested gap.
  bool done() const {
    return best_.fits() && beyond(best_.cost().duration) - beyond(bound_) <= options_.gap * beyond(bound_);
  }

  /// A plan by another planner, within a tenth of the limits, one second, and one second's worth of work.
  void warm_start() {
    constexpr std::int64_t kMostWork = 10'000'000;
    Limits share(limits_, 0.1);
    if (const auto left = share.seconds_left()) share.set_time(std::min(1.0, *left));
    share.set_work(std::min(share.work_left().value_or(kMostWork), kMostWork));
    const PlannerInfo& planner = find_planner(options_.warm_start);
    if (planner.supports(problem_)) return;
    PlanResult start = make_plan(problem_, planner.name, {given_.seed, given_.threads, {}}, share);
    if (start.plan) best_.offer(std::move(*start.plan));
  }

  void solve(StageRows rows) {
    StageSpec spec{.budget = problem_.budget, .rows = rows, .first = {}, .cutoff = std::nullopt};
    if (best_.fits()) spec.cutoff = best_.cost().duration - Duration(1);
    if (limits_.reached()) return;
    const StageModel model(graph_, spec);
    StageEffort effort;
    effort.relative_gap = options_.gap;
    effort.threads = given_.threads;
    effort.seed = static_cast<std::int64_t>(given_.seed);
    effort.on_better = [&](const std::vector<double>& x) { best_.offer(model.plan_as_run(x)); };
    const StageOutcome outcome = solve_stages(graph_, model, spec, effort, limits_);
    if (outcome.x) {
      best_.offer(model.plan_as_run(*outcome.x));
      best_.offer(model.plan_of(*outcome.x));
    }
    if (rows == StageRows::kAnyOrder) bound_ = std::max(bound_, outcome.bound);
    if (rows == StageRows::kGraphOrder) {
      counters_.emplace_back("model_solved", outcome.settled);
      counters_.emplace_back("model_bound", outcome.bound.count());
    }
    columns_ = std::max(columns_, outcome.columns);
    fixed_ += outcome.fixed;
    nodes_ += outcome.nodes;
    iterations_ += outcome.iterations;
  }

  PlanResult conclude() {
    const bool optimal = proved();
    counters_.emplace_back("columns", columns_);
    counters_.emplace_back("fixed", fixed_);
    counters_.emplace_back("nodes", nodes_);
    counters_.emplace_back("iterations", iterations_);
    PlanResult result = best_.result(std::move(counters_));
    result.duration_bound = {"stage_milp", bound_};
    if (optimal) result.status = Status::kOptimal;
    return result;
  }
  const Problem& problem_;
  const Graph& graph_;
  const Options& options_;
  const PlanOptions& given_;
  Limits& limits_;
  Incumbent best_;
  Duration bound_;  ///< of every plan in fixed order
  Counters counters_;
  std::int64_t columns_ = 0, fixed_ = 0, nodes_ = 0, iterations_ = 0;
};

std::optional<std::string> supports(const Problem& problem) {
  return why_no_stage_model(problem, kMostColumns);
}

}  // namespace

PlannerInfo info() {
  const auto table =
      OptionTable<Options>("checkmate_milp")
          .choice("warm_start", &Options::warm_start, {"search", "tw_remat", "greedy", "none"},
                  "planner whose plan bounds the model")
          .choice(
              "rows", &Options::rows, {"both", "checkmate"},
              "both: first the relaxation in which reruns have any order; checkmate: the published rows only")
          .number("gap", &Options::gap, 0, 1, "share of the overhead",
                  "stop, without a proof, once the plan is this close to the bound");
  return with_options(
      {"checkmate_milp", "the stage model as an integer program (HiGHS), warm-started",
       "optimal in fixed order where it says so; else a bound", "Jain et al. 2020 (Checkmate)", supports},
      table, [](const Problem& problem, const Options& options, const PlanOptions& given, Limits& limits) {
        return Solve(problem, options, given, limits).run();
      });
}

}  // namespace remat::checkmate_milp
