#include "exact/stage_solve.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/numbers.h"
#include "lp/tree.h"
#include "remat/check.h"

namespace remat {
namespace {

/// Share of the limits for the tree of proved bounds, used if an integer program's tolerances are too coarse.
constexpr double kTreeShare = 0.5;

/// HiGHS's integer programs are exact to 1e-6 of a row, and presolve rounds as much, so a solution that meets
/// the budget exactly may be cut off. Rows of sizes (with a scaled budget of 512 to 1,024) get ten times that
/// as slack, less than one unit of amounts with up to seven digits. (A hundred times as much more than
/// doubled the time of the proof of random_layered_n100 at 80 %.)
constexpr double kRoom = 1e-5;

/// The program with this slack in every row and column of sizes: no solution is lost, its bounds remain
/// valid.
lp::Model with_room(lp::Model model) {
  for (std::size_t row = 0; row < model.row_lower.size(); ++row) {
    const auto begin = model.entry_factor.begin() + model.row_begin[row];
    const auto end = model.entry_factor.begin() + model.row_begin[row + 1];
    if (std::all_of(begin, end, [](double factor) { return std::fabs(factor) == 1; })) continue;
    model.row_lower[row] -= kRoom;
    model.row_upper[row] += kRoom;
  }
  for (std::size_t column = 0; column < model.upper.size(); ++column) {
    if (!model.integer[column] && model.upper[column] > 1) model.upper[column] += kRoom;
  }
  return model;
}

/// The relaxation with violated rows over several stages.
lp::Solution relax_with_paths(const StageModel& stages, lp::Model& model, std::optional<double> cutoff,
                              Limits& limits, double& bound, StageOutcome& outcome) {
  lp::Relaxation relaxation(model);
  for (;;) {
    lp::Solution relaxed = relaxation.solve(limits);
    outcome.iterations += relaxed.iterations;
    if (relaxed.outcome != lp::Outcome::kOptimal || !relaxed.x) return relaxed;
    bound = std::max(bound, relaxed.bound);
    if (limits.reached() || (cutoff && bound > *cutoff)) return relaxed;
    if (stages.add_paths(*relaxed.x, model) == 0) return relaxed;
    relaxation.add_rows();
  }
}

/// Relaxes until no more columns are fixed. Raises outcome.bound; true if that settles the problem.
bool relax_and_fix(const StageModel& stages, lp::Model& model, std::optional<double> cutoff,
                   const StageEffort& effort, Limits& limits, double& bound, StageOutcome& outcome) {
  lp::Settings settings;
  settings.relax = true;
  settings.threads = effort.threads;
  for (int round = 0; round == 0 || (cutoff && round < effort.fixing_rounds); ++round) {
    lp::Solution relaxed = effort.paths ? relax_with_paths(stages, model, cutoff, limits, bound, outcome)
                                        : lp::solve(model, settings, limits);
    if (!effort.paths) outcome.iterations += relaxed.iterations;
    if (relaxed.outcome == lp::Outcome::kInfeasible) return cutoff.has_value();
    bound = std::max(bound, relaxed.bound);
    if (relaxed.x) outcome.relaxed_x = std::move(relaxed.x);
    if (cutoff && bound > *cutoff) return true;
    if (relaxed.outcome != lp::Outcome::kOptimal || !cutoff || limits.reached()) return false;
    const auto fixed = std::ssize(lp::fix_by_reduced_cost(model, relaxed.row_dual, *cutoff));
    outcome.fixed += fixed;
    if (fixed * 20 < stages.model().num_columns()) return false;
  }
  return false;
}

}  // namespace

std::int64_t full_columns(const Graph& graph) {
  const auto n = graph.ops().size();
  return n * static_cast<std::int64_t>(graph.num_ops() + 2 * graph.num_values()) / 2;
}

std::optional<Plan> plan_within(const Graph& graph, const StageModel& stages, Bytes budget,
                                const std::vector<double>& x) {
  std::optional<Plan> best;
  Duration least = kTooLong;
  for (Plan& plan : std::vector{stages.plan_as_run(x), stages.plan_of(x)}) {
    const Simulation cost = simulate(graph, plan);
    if (cost.peak > budget || cost.duration >= least) continue;
    REMAT_ASSERT_HEAVY(!validate(graph, plan, OrderMode::kFixed, budget), budget, cost.peak);
    least = cost.duration;
    best = std::move(plan);
  }
  return best;
}

class StageSolver::Work {
 public:
  Work(const Graph& graph, const StageModel& stages, StageSpec spec, StageEffort effort)
      : graph_(graph),
        stages_(stages),
        spec_(std::move(spec)),
        effort_(std::move(effort)),
        model_(stages.model()) {
    outcome_.bound = graph.base_duration;
    outcome_.columns = model_.num_columns();
    if (!spec_.cutoff) return;
    above_ = *spec_.cutoff + Duration(1);
    cutoff_ = stages.objective_of(*spec_.cutoff);
  }

  StageOutcome run(Limits& limits) {
    if (!outcome_.settled) go_on(limits);
    return outcome_;
  }

 private:
  void go_on(Limits& limits) {
    if (spec_.cutoff && *spec_.cutoff < graph_.base_duration) {
      outcome_.settled = true;
      return;
    }
    if (!is_relaxed_) {
      double bound = 0;
      if (relax_and_fix(stages_, model_, cutoff_, effort_, limits, bound, outcome_)) return refute();
      conclude(bound);
      if (!effort_.integer || outcome_.settled || limits.reached()) return;
      is_relaxed_ = true;
    }
    // Half a step above the cutoff, where no objective lies.
    if (cutoff_ && lp::milp_margin(*cutoff_) >= stages_.objective_step() / 2) prove_by_tree(limits);
    if (!outcome_.settled && !limits.reached()) solve_program(limits);
  }

  /// No plan of the model is at or below the cutoff.
  void refute() {
    outcome_.settled = true;
    outcome_.bound = *above_;
  }
  void conclude(double objective) {
    outcome_.bound = std::max(outcome_.bound, stages_.duration_of(objective));
    if (above_) outcome_.bound = std::min(outcome_.bound, *above_);
    outcome_.settled = outcome_.settled || (above_ && outcome_.bound == *above_);
  }

  void prove_by_tree(Limits& limits) {
    Limits part(limits, kTreeShare);
    const auto on_solution = [&](const std::vector<double>& x) -> std::optional<double> {
      if (effort_.on_better) effort_.on_better(x);
      const auto plan = plan_within(graph_, stages_, spec_.budget, x);
      if (!outcome_.x) outcome_.x = x;
      const Duration duration = plan ? simulate(graph_, *plan).duration : kTooLong;
      if (duration >= *above_) return std::nullopt;
      outcome_.x = x;
      above_ = duration;
      if (*above_ <= graph_.base_duration) return -1.0;
      return stages_.objective_of(*above_ - Duration(1));
    };
    const lp::TreeOutcome tree = lp::search_tree(model_, *cutoff_, on_solution, part);
    outcome_.nodes += tree.nodes;
    outcome_.iterations += tree.iterations;
    if (tree.closed) return refute();
    conclude(tree.bound);
  }

  lp::Settings settings() const {
    lp::Settings settings;
    settings.relative_gap = effort_.relative_gap;
    settings.absolute_gap = stages_.objective_step() / 4;
    if (above_) settings.cutoff = stages_.objective_of(*above_ - Duration(1)) + stages_.objective_step() / 2;
    settings.heuristic_effort = effort_.heuristics;
    settings.strong_branching = effort_.strong_branching;
    settings.threads = effort_.threads;
    settings.seed = effort_.seed;
    settings.seconds = effort_.seconds;
    if (effort_.on_better)
      settings.on_better = [this](const std::vector<double>& x, double) { effort_.on_better(x); };
    return settings;
  }

  void solve_program(Limits& limits) {
    if (!program_) {
      const lp::Settings made = settings();
      objective_bound_ = made.cutoff;
      program_.emplace(with_room(model_), made);
    }
    lp::Solution solved = program_->advance(limits);
    outcome_.nodes += solved.nodes;
    outcome_.iterations += solved.iterations;
    if (solved.outcome == lp::Outcome::kInfeasible && objective_bound_) {
      conclude(*objective_bound_ - lp::milp_margin(*objective_bound_));
    } else if (solved.outcome != lp::Outcome::kFailed) {
      conclude(solved.bound);
      if (!solved.x) return;
      const Duration least = stages_.duration_of(solved.objective - stages_.objective_step() / 2);
      outcome_.settled = outcome_.settled || least <= outcome_.bound;
      outcome_.x = std::move(solved.x);
    }
  }

  const Graph& graph_;
  const StageModel& stages_;
  const StageSpec spec_;
  const StageEffort effort_;
  lp::Model model_;
  bool is_relaxed_ = false;
  std::optional<lp::Program> program_;
  std::optional<double> objective_bound_;  ///< of the program
  std::optional<Duration> above_;          ///< of the fastest plan that is known
  std::optional<double> cutoff_;           ///< inclusive
  StageOutcome outcome_;
};

StageSolver::StageSolver(const Graph& graph, const StageModel& model, StageSpec spec, StageEffort effort)
    : work_(std::make_unique<Work>(graph, model, std::move(spec), std::move(effort))) {}
StageSolver::~StageSolver() = default;

StageOutcome StageSolver::run(Limits& limits) { return work_->run(limits); }

StageOutcome solve_stages(const Graph& graph, const StageModel& stages, const StageSpec& spec,
                          const StageEffort& effort, Limits& limits) {
  StageEffort within = effort;
  within.seconds = limits.seconds_left();
  return StageSolver(graph, stages, spec, std::move(within)).run(limits);
}

}  // namespace remat
