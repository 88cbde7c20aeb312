#include "lp/highs.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <memory>
#include <mutex>
#include <utility>

#include "base/numbers.h"
#include "base/side_job.h"
#include "interfaces/highs_c_api.h"

namespace remat::lp {
namespace {

struct Destroy {
  void operator()(void* highs) const { Highs_destroy(highs); }
};
using Handle = std::unique_ptr<void, Destroy>;

/// The solver, and what its callbacks need to decide and to tell. Its thread may outlive the call, so it owns
/// all of it and shares only what is guarded.
struct Job {
  Handle highs{Highs_create()};
  std::int64_t iterations_allowed = 0;
  std::atomic<std::int64_t> iterations{0};
  std::atomic<bool> stop{false};
  std::vector<double> ray;  ///< of a relaxation that HiGHS calls infeasible: multipliers that are to show it

  struct Better {
    std::vector<double> x;
    double objective;
  };
  std::mutex mutex;  // guards `better`
  std::vector<Better> better;

  std::vector<Better> take_better() {
    const std::scoped_lock lock(mutex);
    return std::exchange(better, {});
  }
};

void on_callback(int type, const char*, const HighsCallbackDataOut* out, HighsCallbackDataIn* in,
                 void* data) {
  Job& job = *static_cast<Job*>(data);
  if (type == kHighsCallbackMipImprovingSolution) {
    if (!out->mip_solution) return;
    const std::scoped_lock lock(job.mutex);
    job.better.push_back(
        {{out->mip_solution, out->mip_solution + out->mip_solution_size}, out->objective_function_value});
    return;
  }
  if (type == kHighsCallbackMipInterrupt) job.iterations = out->mip_total_lp_iterations;
  if (type == kHighsCallbackSimplexInterrupt) job.iterations = out->simplex_iteration_count;
  if (job.iterations >= job.iterations_allowed) job.stop = true;
  if (job.stop && in) in->user_interrupt = 1;
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
  const auto nonzeros = narrow<HighsInt>(model.num_entries());
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

void set_options(void* highs, const Settings& settings, const Limits& limits) {
  Highs_setBoolOptionValue(highs, "output_flag", 0);
  Highs_setIntOptionValue(highs, "threads", settings.threads);
  Highs_setStringOptionValue(highs, "parallel", settings.threads > 1 ? "on" : "off");
  Highs_setIntOptionValue(highs, "random_seed", narrow<HighsInt>(settings.seed & 0x7fffffff));
  Highs_setDoubleOptionValue(highs, "mip_rel_gap", settings.relative_gap);
  Highs_setDoubleOptionValue(highs, "mip_abs_gap", settings.absolute_gap);
  Highs_setDoubleOptionValue(highs, "mip_heuristic_effort", settings.heuristic_effort);
  if (!settings.strong_branching) Highs_setIntOptionValue(highs, "mip_pscost_minreliable", 0);
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
    columns.push_back(narrow<HighsInt>(c));
    values.push_back(start[c]);
  }
  Highs_setSparseSolution(highs, narrow<HighsInt>(columns.size()), columns.data(), values.data());
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

/// Runs HiGHS; of an infeasible relaxation the dual ray may take another solve.
void run(Job& job, std::size_t rows, bool relax) {
  void* const highs = job.highs.get();
  Highs_run(highs);
  if (!relax || Highs_getModelStatus(highs) != kHighsModelStatusInfeasible || job.stop) return;
  HighsInt has_ray = 0;
  job.ray.assign(rows, 0);
  Highs_getDualRay(highs, &has_ray, job.ray.data());
  if (!has_ray) job.ray.clear();
}

void read_solution(const Job& job, const Model& model, bool relax, Solution& solution) {
  void* const highs = job.highs.get();
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
    solution.bound -= milp_margin(solution.bound);
    Highs_getInt64InfoValue(highs, "mip_node_count", &solution.nodes);
    return;
  }
  if (solution.outcome == Outcome::kInfeasible) {
    if (job.ray.empty() || !proves_infeasible(model, job.ray)) solution.outcome = Outcome::kFailed;
    return;
  }
  solution.row_dual = std::move(row_dual);
  // Duals of a run that was cut short prove something too.
  solution.bound = dual_bound(model, solution.row_dual);
}

/// A model without columns, which HiGHS does not judge: its rows are true or false.
Solution solve_empty(const Model& model) {
  Solution solution;
  const bool holds = violation(model, {}) <= 0;
  solution.outcome = holds ? Outcome::kOptimal : Outcome::kInfeasible;
  if (holds) solution.x.emplace();
  solution.bound = holds ? 0 : kInfinity;
  solution.row_dual.assign(model.row_lower.size(), 0);
  return solution;
}

void start_callbacks(Job& job, const Settings& settings) {
  void* const highs = job.highs.get();
  Highs_setCallback(highs, on_callback, &job);
  if (settings.relax) {
    Highs_startCallback(highs, kHighsCallbackSimplexInterrupt);
    Highs_startCallback(highs, kHighsCallbackIpmInterrupt);
  } else {
    Highs_startCallback(highs, kHighsCallbackMipInterrupt);
    if (settings.on_better) Highs_startCallback(highs, kHighsCallbackMipImprovingSolution);
  }
}

/// Simplex iterations cost so many units of work each.
std::int64_t iteration_unit(const Model& model) {
  return std::max<std::int64_t>(1, model.num_entries() / 32);
}

}  // namespace

Solution solve(const Model& model, const Settings& settings, Limits& limits) {
  Solution solution;
  const std::int64_t unit = iteration_unit(model);
  // Reading the model in costs as much as some iterations do.
  if (limits.spend(unit) || limits.reached()) {
    solution.outcome = Outcome::kStopped;
    return solution;
  }
  if (model.num_columns() == 0) return solve_empty(model);
  const auto work_left = limits.work_left();
  const auto job = std::make_shared<Job>();
  void* const highs = job->highs.get();
  job->iterations_allowed = work_left ? *work_left / unit : std::numeric_limits<std::int64_t>::max();
  set_options(highs, settings, limits);
  pass_model(highs, model, settings.relax);
  start_callbacks(*job, settings);
  if (!settings.relax && settings.start) pass_start(highs, *settings.start);
  const auto hand_over = [&] {
    for (const Job::Better& better : job->take_better()) {
      if (settings.on_better) settings.on_better(better.x, better.objective);
    }
  };
  // Presolve, factorisations and the end of a run look at no callback for seconds.
  const std::size_t rows = model.row_lower.size();
  const bool relax = settings.relax;
  const bool ended = run_beside({.work = [job, rows, relax] { run(*job, rows, relax); },
                                 .stop = [&] { job->stop = true; },
                                 .meanwhile = hand_over},
                                limits);
  hand_over();
  if (!ended) {
    solution.outcome = Outcome::kStopped;
    return solution;
  }
  solution.outcome = outcome_of(Highs_getModelStatus(highs));
  read_solution(*job, model, settings.relax, solution);
  solution.iterations = job->iterations;
  limits.spend(solution.iterations * unit);
  limits.reached();
  return solution;
}

struct Relaxation::State {
  const Model& model;
  std::shared_ptr<Job> job = std::make_shared<Job>();
  int rows = model.num_rows();  ///< that the solver has
  bool left_behind = false;     ///< the solver runs on by itself and must not be touched
};

Relaxation::Relaxation(const Model& model) : state_(std::make_unique<State>(State{.model = model})) {
  Settings settings;
  settings.relax = true;
  const Limits unlimited;
  set_options(state_->job->highs.get(), settings, unlimited);
  pass_model(state_->job->highs.get(), model, true);
  start_callbacks(*state_->job, settings);
}
Relaxation::~Relaxation() = default;

void Relaxation::update(Column column) {
  if (state_->left_behind) return;
  const auto c = narrow<std::size_t>(column);
  Highs_changeColBounds(state_->job->highs.get(), column, state_->model.lower[c], state_->model.upper[c]);
}

void Relaxation::add_rows() {
  const Model& model = state_->model;
  if (state_->left_behind || state_->rows == model.num_rows()) return;
  const auto first = at(std::exchange(state_->rows, model.num_rows()));
  const double infinity = Highs_getInfinity(state_->job->highs.get());
  std::vector<double> lower, upper;
  std::vector<HighsInt> begin;
  for (std::size_t row = first; row < model.row_lower.size(); ++row) {
    lower.push_back(std::max(model.row_lower[row], -infinity));
    upper.push_back(std::min(model.row_upper[row], infinity));
    begin.push_back(model.row_begin[row] - model.row_begin[first]);
  }
  const auto entries = at(model.row_begin[first]);
  Highs_addRows(state_->job->highs.get(), narrow<HighsInt>(lower.size()), lower.data(), upper.data(),
                narrow<HighsInt>(model.entry_column.size() - entries), begin.data(),
                model.entry_column.data() + entries, model.entry_factor.data() + entries);
}

Solution Relaxation::solve(Limits& limits) {
  Solution solution;
  solution.outcome = Outcome::kStopped;
  if (state_->left_behind || limits.reached()) return solution;
  const auto job = state_->job;
  const std::int64_t unit = iteration_unit(state_->model);
  const auto work_left = limits.work_left();
  job->iterations_allowed = work_left ? *work_left / unit : std::numeric_limits<std::int64_t>::max();
  job->iterations = 0;
  job->ray.clear();
  const std::size_t rows = state_->model.row_lower.size();
  const bool ended =
      run_beside({.work = [job, rows] { run(*job, rows, true); }, .stop = [&] { job->stop = true; }}, limits);
  state_->left_behind = !ended;
  if (!ended) return solution;
  void* const highs = job->highs.get();
  solution.outcome = outcome_of(Highs_getModelStatus(highs));
  read_solution(*job, state_->model, true, solution);
  HighsInt iterations = 0;
  Highs_getIntInfoValue(highs, "simplex_iteration_count", &iterations);
  solution.iterations = std::max<HighsInt>(0, iterations);
  limits.spend((1 + solution.iterations) * unit);
  limits.reached();
  return solution;
}

}  // namespace remat::lp
