// The stage model solved: relaxation, reduced-cost fixing, integer program.
#pragma once

#include <functional>
#include <memory>
#include <optional>

#include "exact/stage_model.h"
#include "lp/highs.h"
#include "remat/bounds.h"
#include "remat/limits.h"

namespace remat {

struct StageOutcome {
  Duration bound;        ///< on every plan of the model, at most the cutoff plus one
  bool settled = false;  ///< no plan of the model is at or below the cutoff, or `x` is the best
  std::optional<std::vector<double>> x;          ///< best integer solution at or below the cutoff
  std::optional<std::vector<double>> relaxed_x;  ///< of the last relaxation
  std::int64_t columns = 0, fixed = 0, nodes = 0, iterations = 0;
};

struct StageEffort {
  bool integer = true;    ///< after the relaxation, the integer program
  bool paths = false;     ///< rows over several stages, as a relaxation breaks them (StageModel::add_paths)
  int fixing_rounds = 2;  ///< relaxations whose reduced costs fix columns
  double heuristics = 0.05;
  bool strong_branching = true;
  double relative_gap = 0;
  int threads = 1;
  std::int64_t seed = 0;
  std::optional<double> seconds = std::nullopt;  ///< for the integer program, over all calls
  /// Called for every improved integer solution of the model.
  std::function<void(const std::vector<double>&)> on_better = {};
};

/// Columns that a model with one stage per op has at most.
std::int64_t full_columns(const Graph& graph);

/// The faster of the two plans that can be read off a solution, among those that fit the budget.
std::optional<Plan> plan_within(const Graph& graph, const StageModel& stages, Bytes budget,
                                const std::vector<double>& x);

/// Solves a model in several calls, each of which continues where the limits ended the last.
class StageSolver {
 public:
  /// The graph and the model, which is that of `spec`, must outlive it.
  StageSolver(const Graph& graph, const StageModel& model, StageSpec spec, StageEffort effort);
  ~StageSolver();
  StageSolver(const StageSolver&) = delete;
  StageSolver& operator=(const StageSolver&) = delete;

  /// `x` of the outcome is the best solution so far.
  StageOutcome run(Limits& limits);

 private:
  class Work;
  std::unique_ptr<Work> work_;
};

/// Solves the model of `spec`, whose cutoff is inclusive. Reduced-cost fixing: a column whose other value
/// raises the relaxation's bound over the cutoff is fixed; that halves the columns and saves 90 % of the time
/// on training graphs.
StageOutcome solve_stages(const Graph& graph, const StageModel& model, const StageSpec& spec,
                          const StageEffort& effort, Limits& limits);

}  // namespace remat
