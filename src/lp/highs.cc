#include "lp/highs.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <system_error>
#include <utility>

#include "base/numbers.h"
#include "base/side_job.h"
#include "interfaces/highs_c_api.h"
#include "remat/check.h"

namespace remat::lp {

std::optional<std::string> unavailable() { return std::nullopt; }

namespace {

struct Destroy {
  void operator()(void* highs) const { Highs_destroy(highs); }
};
using Handle = std::unique_ptr<void, Destroy>;

/// Lets a solver run up to a number of iterations, then makes it wait for more.
class Gate {
 public:
  /// Called on the solver's thread; may wait. False: the solver has to end.
  bool pass(std::int64_t iterations, double bound) {
    std::unique_lock lock(mutex_);
    iterations_ = iterations;
    bound_ = std::max(bound_, bound);
    is_waiting_ = true;
    changed_.wait(lock, [&] { return ends_ || !may_wait_ || iterations_ < allowed_; });
    is_waiting_ = false;
    return !ends_ && iterations_ < allowed_;
  }

  /// For a solver on the caller's own thread, which must end and not wait.
  void end_in_place_of_waiting() { may_wait_ = false; }

  void allow(std::int64_t iterations) {
    const std::scoped_lock lock(mutex_);
    allowed_ = iterations;
    changed_.notify_one();
  }
  void end() {
    const std::scoped_lock lock(mutex_);
    ends_ = true;
    changed_.notify_one();
  }
  bool is_waiting() const {
    const std::scoped_lock lock(mutex_);
    return is_waiting_ && !ends_ && iterations_ >= allowed_;
  }
  std::int64_t iterations() const {
    const std::scoped_lock lock(mutex_);
    return iterations_;
  }
  double bound() const {
    const std::scoped_lock lock(mutex_);
    return bound_;
  }

 private:
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::int64_t iterations_ = 0, allowed_ = 0;
  double bound_ = -kInfinity;
  bool ends_ = false, is_waiting_ = false, may_wait_ = true;
};

/// The solver and the state of its callbacks. Its thread may outlive the call, so it owns all of this and
/// shares only guarded data.
struct Job {
  Handle highs{Highs_create()};
  std::int64_t iterations_allowed = 0;
  std::atomic<std::int64_t> iterations{0};
  std::atomic<bool> stop{false};
  std::unique_ptr<Gate> gate;  ///< of what may wait
  std::vector<double> ray;     ///< multipliers that should prove a relaxation infeasible

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
  if (job.gate) {
    if (!job.gate->pass(out->mip_total_lp_iterations, out->mip_dual_bound) && in) in->user_interrupt = 1;
    return;
  }
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

void set_options(void* highs, const Settings& settings) {
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
  if (settings.seconds) Highs_setDoubleOptionValue(highs, "time_limit", *settings.seconds);
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

/// Solves a relaxation; the dual ray of an infeasible one may take another solve.
void run(Job& job, std::size_t rows) {
  void* const highs = job.highs.get();
  Highs_run(highs);
  if (Highs_getModelStatus(highs) != kHighsModelStatusInfeasible || job.stop) return;
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
  // Duals of an interrupted run also prove a bound.
  solution.bound = dual_bound(model, solution.row_dual);
  REMAT_ASSERT(solution.outcome != Outcome::kOptimal ||
                   solution.bound <= solution.objective + milp_margin(solution.objective),
               solution.bound, solution.objective);
}

/// A model without columns, which HiGHS does not accept: its rows either hold or not.
Solution solve_empty(const Model& model) {
  Solution solution;
  const bool holds = violation(model, {}) <= 0;
  solution.outcome = holds ? Outcome::kOptimal : Outcome::kInfeasible;
  if (holds) solution.x.emplace();
  solution.bound = holds ? 0 : kInfinity;
  solution.row_dual.assign(model.row_lower.size(), 0);
  return solution;
}

void start_callbacks(Job& job) {
  void* const highs = job.highs.get();
  Highs_setCallback(highs, on_callback, &job);
  Highs_startCallback(highs, kHighsCallbackSimplexInterrupt);
  Highs_startCallback(highs, kHighsCallbackIpmInterrupt);
}

/// Work units of one simplex iteration.
std::int64_t iteration_unit(const Model& model) {
  return std::max<std::int64_t>(1, model.num_entries() / 32);
}

}  // namespace

struct Program::State {
  State(Model given, std::function<void(const std::vector<double>&, double)> better)
      : model(std::move(given)), unit(iteration_unit(model)), on_better(std::move(better)) {}

  Model model;
  std::int64_t unit;  ///< of work, an iteration
  std::function<void(const std::vector<double>&, double)> on_better;
  std::shared_ptr<Job> job = std::make_shared<Job>();
  std::optional<SideThread> thread;
  bool has_ended = false;
  std::int64_t iterations = 0;  ///< spent
  Job::Better best = {};

  void start() {
    try {
      thread.emplace([job = job] { Highs_run(job->highs.get()); });
    } catch (const std::system_error&) {
      job->gate->end_in_place_of_waiting();
      Highs_run(job->highs.get());
      has_ended = true;
    }
  }

  void hand_over() {
    for (Job::Better& better : job->take_better()) {
      if (on_better) on_better(better.x, better.objective);
      best = std::move(better);
    }
  }

  /// Waits until the solver has ended, waits at the gate, or will stop at its next callback.
  void wait(Limits& limits) {
    const auto is_paused = [this] {
      hand_over();
      return job->gate->is_waiting();
    };
    thread->wait(limits, [this] { job->gate->allow(0); }, is_paused);
    if (!thread->ended_within({})) return;
    thread->join();
    has_ended = true;
  }

  Solution read() {
    hand_over();
    Solution now;
    if (has_ended) {
      now.outcome = outcome_of(Highs_getModelStatus(job->highs.get()));
      read_solution(*job, model, false, now);
    } else {
      now.outcome = Outcome::kStopped;
      const double bound = job->gate->bound();
      now.bound = bound - milp_margin(bound);
      now.objective = best.objective;
      if (!best.x.empty()) now.x = best.x;
    }
    return now;
  }
};

Program::Program(Model model, const Settings& settings)
    : state_(std::make_unique<State>(std::move(model), settings.on_better)) {
  Job& job = *state_->job;
  job.gate = std::make_unique<Gate>();
  void* const highs = job.highs.get();
  set_options(highs, settings);
  pass_model(highs, state_->model, false);
  Highs_setCallback(highs, on_callback, &job);
  Highs_startCallback(highs, kHighsCallbackMipInterrupt);
  Highs_startCallback(highs, kHighsCallbackMipImprovingSolution);
  if (settings.start) pass_start(highs, *settings.start);
}

Program::~Program() {
  State& state = *state_;
  const bool ends_at_once = state.job->gate->is_waiting();
  state.job->gate->end();
  if (ends_at_once && state.thread->ended_within(SideThread::kGrace)) state.thread->join();
}

Solution Program::advance(Limits& limits) {
  State& state = *state_;
  if (state.model.num_columns() == 0) return solve_empty(state.model);
  // Reading the model counts as some iterations.
  const bool is_over = limits.spend(state.thread ? 0 : state.unit) || limits.reached();
  if (!is_over && !state.has_ended) {
    const auto work_left = limits.work_left();
    state.job->gate->allow(work_left ? state.iterations + *work_left / state.unit
                                     : std::numeric_limits<std::int64_t>::max());
    if (!state.thread) state.start();
    if (state.thread) state.wait(limits);
  }
  Solution solution = state.read();
  const std::int64_t spent = state.job->gate->iterations();
  solution.iterations = spent - std::exchange(state.iterations, spent);
  limits.spend(solution.iterations * state.unit);
  limits.reached();
  return solution;
}

Solution solve(const Model& model, const Settings& settings, Limits& limits) {
  Settings within = settings;
  within.seconds = limits.seconds_left();
  if (!settings.relax) return Program(model, within).advance(limits);
  Solution solution;
  const std::int64_t unit = iteration_unit(model);
  // Reading the model counts as some iterations.
  if (limits.spend(unit) || limits.reached()) {
    solution.outcome = Outcome::kStopped;
    return solution;
  }
  if (model.num_columns() == 0) return solve_empty(model);
  const auto work_left = limits.work_left();
  const auto job = std::make_shared<Job>();
  job->iterations_allowed = work_left ? *work_left / unit : std::numeric_limits<std::int64_t>::max();
  set_options(job->highs.get(), within);
  pass_model(job->highs.get(), model, true);
  start_callbacks(*job);
  // Presolve, factorisations and the end of a run make no callback for seconds.
  const std::size_t rows = model.row_lower.size();
  const bool ended =
      run_beside({.work = [job, rows] { run(*job, rows); }, .stop = [&] { job->stop = true; }}, limits);
  if (!ended) {
    solution.outcome = Outcome::kStopped;
    return solution;
  }
  solution.outcome = outcome_of(Highs_getModelStatus(job->highs.get()));
  read_solution(*job, model, true, solution);
  solution.iterations = job->iterations;
  limits.spend(solution.iterations * unit);
  limits.reached();
  return solution;
}

struct Relaxation::State {
  const Model& model;
  std::shared_ptr<Job> job = std::make_shared<Job>();
  int rows = model.num_rows();  ///< known to the solver
  bool left_behind = false;     ///< the abandoned solver still runs and must not be touched
};

Relaxation::Relaxation(const Model& model) : state_(std::make_unique<State>(State{.model = model})) {
  Settings settings;
  settings.relax = true;
  set_options(state_->job->highs.get(), settings);
  pass_model(state_->job->highs.get(), model, true);
  start_callbacks(*state_->job);
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
      run_beside({.work = [job, rows] { run(*job, rows); }, .stop = [&] { job->stop = true; }}, limits);
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
