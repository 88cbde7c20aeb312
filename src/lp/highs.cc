#include "lp/highs.h"

#include <algorithm>
#include <cmath>
#include <memory>

#include "interfaces/highs_c_api.h"

namespace remat::lp {
namespace {

constexpr double kRowTolerance = 1e-6;

struct Destroy {
  void operator()(void* highs) const { Highs_destroy(highs); }
};
using Handle = std::unique_ptr<void, Destroy>;

/// What the callbacks need to decide and to tell.
struct Watch {
  Limits* limits;
  const Settings* settings;
  std::int64_t iterations_allowed;
  std::int64_t iterations = 0;
  bool interrupted = false;
};

void on_callback(int type, const char*, const HighsCallbackDataOut* out, HighsCallbackDataIn* in,
                 void* data) {
  Watch& watch = *static_cast<Watch*>(data);
  if (type == kHighsCallbackMipImprovingSolution) {
    if (watch.settings->on_better && out->mip_solution) {
      watch.settings->on_better({out->mip_solution, out->mip_solution + out->mip_solution_size},
                                out->objective_function_value);
    }
    return;
  }
  if (type == kHighsCallbackMipInterrupt) watch.iterations = out->mip_total_lp_iterations;
  if (type == kHighsCallbackSimplexInterrupt) watch.iterations = out->simplex_iteration_count;
  if (watch.iterations >= watch.iterations_allowed || watch.limits->reached()) watch.interrupted = true;
  if (watch.interrupted && in) in->user_interrupt = 1;
}

void pass_model(void* highs, const Model& model, bool relax) {
  std::vector<HighsInt> integrality;
  if (!relax) {
    for (bool integer : model.integer)
      integrality.push_back(integer ? kHighsVarTypeInteger : kHighsVarTypeContinuous);
  }
  const double infinity = Highs_getInfinity(highs);
  const auto finite = [infinity](std::vector<double> column) {
    for (double& x : column) x = std::clamp(x, -infinity, infinity);
    return column;
  };
  const auto lower = finite(model.lower), upper = finite(model.upper);
  const auto row_lower = finite(model.row_lower), row_upper = finite(model.row_upper);
  const auto nonzeros = static_cast<HighsInt>(model.num_entries());
  if (relax) {
    Highs_passLp(highs, model.num_columns(), model.num_rows(), nonzeros, kHighsMatrixFormatRowwise,
                 kHighsObjSenseMinimize, 0.0, model.cost.data(), lower.data(), upper.data(), row_lower.data(),
                 row_upper.data(), model.row_begin.data(), model.entry_column.data(),
                 model.entry_factor.data());
  } else {
    Highs_passMip(highs, model.num_columns(), model.num_rows(), nonzeros, kHighsMatrixFormatRowwise,
                  kHighsObjSenseMinimize, 0.0, model.cost.data(), lower.data(), upper.data(),
                  row_lower.data(), row_upper.data(), model.row_begin.data(), model.entry_column.data(),
                  model.entry_factor.data(), integrality.data());
  }
}

void set_options(void* highs, const Settings& settings, Limits& limits) {
  Highs_setBoolOptionValue(highs, "output_flag", 0);
  Highs_setIntOptionValue(highs, "threads", settings.threads);
  Highs_setStringOptionValue(highs, "parallel", settings.threads > 1 ? "on" : "off");
  Highs_setIntOptionValue(highs, "random_seed", static_cast<HighsInt>(settings.seed & 0x7fffffff));
  Highs_setDoubleOptionValue(highs, "mip_rel_gap", settings.relative_gap);
  Highs_setDoubleOptionValue(highs, "mip_abs_gap", settings.absolute_gap);
  Highs_setDoubleOptionValue(highs, "mip_heuristic_effort", settings.heuristic_effort);
  if (settings.cutoff && !settings.relax)
    Highs_setDoubleOptionValue(highs, "objective_bound", *settings.cutoff);
  if (const auto left = limits.seconds_left()) Highs_setDoubleOptionValue(highs, "time_limit", *left);
}

/// Columns without a value are completed by HiGHS.
void pass_start(void* highs, const std::vector<double>& start) {
  std::vector<HighsInt> columns;
  std::vector<double> values;
  for (std::size_t c = 0; c < start.size(); ++c) {
    if (std::isnan(start[c])) continue;
    columns.push_back(static_cast<HighsInt>(c));
    values.push_back(start[c]);
  }
  Highs_setSparseSolution(highs, static_cast<HighsInt>(columns.size()), columns.data(), values.data());
}

Outcome outcome_of(HighsInt status) {
  if (status == kHighsModelStatusOptimal || status == kHighsModelStatusModelEmpty) return Outcome::kOptimal;
  if (status == kHighsModelStatusInfeasible || status == kHighsModelStatusObjectiveBound)
    return Outcome::kInfeasible;
  if (status == kHighsModelStatusTimeLimit || status == kHighsModelStatusIterationLimit ||
      status == kHighsModelStatusInterrupt || status == kHighsModelStatusSolutionLimit) {
    return Outcome::kStopped;
  }
  return Outcome::kFailed;
}

void read_solution(void* highs, const Model& model, bool relax, Solution& solution) {
  std::vector<double> x(model.cost.size()), column_dual(model.cost.size());
  std::vector<double> row_value(model.row_lower.size()), row_dual(model.row_lower.size());
  Highs_getSolution(highs, x.data(), column_dual.data(), row_value.data(), row_dual.data());
  HighsInt primal = 0, dual = 0;
  Highs_getIntInfoValue(highs, "primal_solution_status", &primal);
  Highs_getIntInfoValue(highs, "dual_solution_status", &dual);
  if (primal == kHighsSolutionStatusFeasible) {
    Highs_getDoubleInfoValue(highs, "objective_function_value", &solution.objective);
    solution.x = std::move(x);
  }
  if (!relax) {
    Highs_getDoubleInfoValue(highs, "mip_dual_bound", &solution.bound);
    Highs_getInt64InfoValue(highs, "mip_node_count", &solution.nodes);
    return;
  }
  solution.row_dual = std::move(row_dual);
  // Duals of a run that was cut short prove something too.
  solution.bound = dual_bound(model, solution.row_dual);
}

/// A model without columns, which HiGHS does not judge: its rows are true or false.
Solution solve_empty(const Model& model) {
  Solution solution;
  const bool holds = violation(model, {}) <= kRowTolerance;
  solution.outcome = holds ? Outcome::kOptimal : Outcome::kInfeasible;
  if (holds) solution.x.emplace();
  solution.bound = holds ? 0 : kInfinity;
  solution.row_dual.assign(model.row_lower.size(), 0);
  return solution;
}

}  // namespace

Solution solve(const Model& model, const Settings& settings, Limits& limits) {
  Solution solution;
  const std::int64_t unit = std::max<std::int64_t>(1, model.num_entries() / 32);
  // Reading the model in costs as much as some iterations do.
  if (limits.spend(unit) || limits.reached()) {
    solution.outcome = Outcome::kStopped;
    return solution;
  }
  if (model.num_columns() == 0) return solve_empty(model);
  const auto work_left = limits.work_left();
  Watch watch{&limits, &settings, work_left ? *work_left / unit : std::numeric_limits<std::int64_t>::max()};
  const Handle highs(Highs_create());
  set_options(highs.get(), settings, limits);
  pass_model(highs.get(), model, settings.relax);
  Highs_setCallback(highs.get(), on_callback, &watch);
  if (settings.relax) {
    Highs_startCallback(highs.get(), kHighsCallbackSimplexInterrupt);
    Highs_startCallback(highs.get(), kHighsCallbackIpmInterrupt);
  } else {
    Highs_startCallback(highs.get(), kHighsCallbackMipInterrupt);
    if (settings.on_better) Highs_startCallback(highs.get(), kHighsCallbackMipImprovingSolution);
    if (settings.start) {
      pass_start(highs.get(), *settings.start);
    }
  }
  Highs_run(highs.get());
  solution.outcome = outcome_of(Highs_getModelStatus(highs.get()));
  read_solution(highs.get(), model, settings.relax, solution);
  solution.iterations = watch.iterations;
  limits.spend(solution.iterations * unit);
  limits.reached();
  return solution;
}

}  // namespace remat::lp
