#include "exact/stage_solve.h"

#include <algorithm>

namespace remat {
namespace {

/// Objectives are equal when they differ by less than this part of the smallest step between two durations.
constexpr double kTolerance = 1e-3;

/// Relaxations until they fix nothing more. Raises outcome.bound; true where that settles the question.
bool relax_and_fix(const StageModel& stages, lp::Model& model, std::optional<double> cutoff,
                   const StageEffort& effort, Limits& limits, double& bound, StageOutcome& outcome) {
  lp::Settings settings;
  settings.relax = true;
  settings.threads = effort.threads;
  for (int round = 0; round == 0 || (cutoff && round < effort.fixing_rounds); ++round) {
    const lp::Solution relaxed = lp::solve(model, settings, limits);
    outcome.iterations += relaxed.iterations;
    if (relaxed.outcome == lp::Outcome::kInfeasible) return cutoff.has_value();
    bound = std::max(bound, relaxed.bound);
    if (cutoff && bound > *cutoff) return true;
    if (relaxed.outcome != lp::Outcome::kOptimal || !cutoff || limits.reached()) return false;
    const int fixed = lp::fix_by_reduced_cost(model, relaxed.row_dual, *cutoff);
    outcome.fixed += fixed;
    if (fixed * 20 < stages.model().num_columns()) return false;
  }
  return false;
}

}  // namespace

std::int64_t full_columns(const Graph& graph) {
  const auto n = static_cast<std::int64_t>(graph.num_ops());
  return n * static_cast<std::int64_t>(graph.num_ops() + 2 * graph.num_values()) / 2;
}

StageOutcome solve_stages(const Graph& graph, const StageModel& stages, const StageSpec& spec,
                          const StageEffort& effort, Limits& limits) {
  StageOutcome outcome;
  outcome.bound = graph.base_duration;
  outcome.columns = stages.model().num_columns();
  const auto above = spec.cutoff ? std::optional(*spec.cutoff + Duration(1)) : std::nullopt;
  const auto conclude = [&](double objective) {
    outcome.bound = std::max(outcome.bound, stages.duration_of(objective));
    if (above) outcome.bound = std::min(outcome.bound, *above);
    outcome.settled = outcome.settled || (above && outcome.bound == *above);
  };
  // A plan that would be faster by less than the solver resolves is not told apart.
  const auto refute = [&] {
    outcome.settled = true;
    conclude(stages.objective_of(*above));
  };
  std::optional<double> cutoff;
  if (spec.cutoff) {
    if (*spec.cutoff < graph.base_duration) {
      outcome.settled = true;
      return outcome;
    }
    cutoff = stages.objective_of(*spec.cutoff) + kTolerance * stages.objective_step();
  }
  lp::Model model = stages.model();
  double bound = 0;
  if (relax_and_fix(stages, model, cutoff, effort, limits, bound, outcome)) {
    refute();
    return outcome;
  }
  conclude(bound);
  if (!effort.integer || outcome.settled || limits.reached()) return outcome;
  lp::Settings settings;
  settings.relative_gap = effort.relative_gap;
  settings.absolute_gap = stages.objective_step() * 0.5;
  settings.cutoff = cutoff;
  settings.heuristic_effort = effort.heuristics;
  settings.threads = effort.threads;
  settings.seed = effort.seed;
  if (effort.on_better)
    settings.on_better = [&](const std::vector<double>& x, double) { effort.on_better(x); };
  lp::Solution solved = lp::solve(model, settings, limits);
  outcome.nodes = solved.nodes;
  outcome.iterations += solved.iterations;
  if (solved.outcome == lp::Outcome::kInfeasible && above) {
    refute();
  } else if (solved.outcome != lp::Outcome::kFailed) {
    outcome.settled = solved.outcome == lp::Outcome::kOptimal && solved.x.has_value();
    outcome.x = std::move(solved.x);
    conclude(solved.bound);
  }
  return outcome;
}

}  // namespace remat
