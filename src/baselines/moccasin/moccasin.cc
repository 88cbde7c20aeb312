// Retention intervals solved by constraint programming (Bartan et al., ICML 2023), with OR-tools' CP-SAT.
#include <algorithm>
#include <cstdint>
#include <stdexcept>
#include <string>

#include "base/numbers.h"
#include "baselines/moccasin/neighbourhood.h"
#include "cpsat/library.h"
#include "cpsat/solver.h"
#include "exact/interval_model.h"
#include "planning/incumbent.h"
#include "planning/options.h"
#include "remat/planner.h"

namespace remat::moccasin {
namespace {

struct Options {
  std::int64_t c = 2;
  std::string form = "auto";
  std::string warm_start = "none";
  bool presolve = false;
  bool linearization = true;
  bool neighbourhoods = true;
};

constexpr std::size_t kMostOps = 3000;

/// Size of the next neighbourhood: larger if the last one was solved in time without improvement, smaller if
/// it was not solved in time.
class AdaptiveSize {
 public:
  std::size_t get() const { return narrow<std::size_t>(size_); }
  void learn(bool improved, bool solved) {
    failures_ = improved ? 0 : failures_ + 1;
    if (solved && !improved) size_ = std::min(kMost, size_ + size_ / 8);
    if (!solved) size_ = std::max(kLeast, size_ - size_ / 6);
  }
  int failures() const { return failures_; }

 private:
  static constexpr std::int64_t kLeast = 8, kMost = 400;
  std::int64_t size_ = 24;
  int failures_ = 0;
};

class Phases {
 public:
  Phases(const Problem& problem, const Options& options, const PlanOptions& common, Limits& limits)
      : graph_(*problem.graph),
        problem_(problem),
        options_(options),
        common_(common),
        limits_(limits),
        best_(problem, "moccasin", limits),
        random_(common.seed) {
    const bool stages =
        options.form == "stage" || (options.form == "auto" && problem.order == OrderMode::kFixed);
    shape_ = make_shape(graph_, problem.order, stages ? Form::kStage : Form::kEvents, narrow<int>(options.c));
    best_.offer(keep_all_plan(graph_));
  }

  PlanResult run() {
    if (best_.fits()) return best_.result({});
    collect_starts();
    admit(graph_, best_.plan(), shape_);
    Bytes budget = problem_.budget;
    if (problem_.objective == Objective::kPeak)
      budget = problem_.peak_bound ? problem_.peak_bound->peak : graph_.resident;
    bool fits = best_.cost().peak <= budget || lower_peak(budget) || minimize_peak(budget);
    if (problem_.objective == Objective::kPeak) {
      budget = best_.cost().peak;
      fits = true;
    }
    if (fits) {
      save_reruns(budget);
      minimize_duration(budget);
    }
    return finish();
  }

 private:
  /// Other planners' plans, in the shape of the model.
  void collect_starts() {
    for (const Plan& start : problem_.starts) best_.offer(shaped(graph_, shape_, start));
    if (options_.warm_start == "none") return;
    Limits share(limits_, 0.3);
    PlanOptions options;
    options.seed = common_.seed;
    options.threads = common_.threads;
    const PlanResult warm = make_plan(problem_, options_.warm_start, options, share);
    if (!warm.plan) return;
    best_.offer(shaped(graph_, shape_, *warm.plan));
    count("warm_start_peak", warm.cost.peak.count());
    count("warm_start_duration", warm.cost.duration.count());
  }

  cpsat::Parameters parameters(Goal goal) const {
    cpsat::Parameters p;
    p.from_below = goal == Goal::kPeak;
    p.threads = common_.threads;
    p.seed = common_.seed;
    p.presolve = options_.presolve;
    p.linearization = options_.linearization ? 1 : 0;
    return p;
  }

  cpsat::Response call(const Formulation& formulation, const cpsat::Parameters& parameters) {
    cpsat::Response response = cpsat::solve(formulation.model(), parameters, limits_);
    if (response.status == cpsat::Status::kModelInvalid) {
      throw std::logic_error("moccasin made a model that CP-SAT refuses: " + response.message);
    }
    return response;
  }

  cpsat::Response solve(Formulation& formulation, const std::string& phase) {
    formulation.hint(best_.plan());
    const double before = limits_.seconds();
    cpsat::Response response =
        call(formulation, parameters(phase == "phase1" ? Goal::kPeak : Goal::kDuration));
    count(phase + "_variables", formulation.model().num_variables());
    count(phase + "_constraints", formulation.model().num_constraints());
    count(phase + "_solutions", std::ssize(response.improvements));
    count(phase + "_milliseconds", static_cast<std::int64_t>(1e3 * (limits_.seconds() - before)));
    for (const cpsat::Improvement& one : response.improvements) {
      point(phase, before + one.seconds, formulation.real_objective(one.objective));
    }
    if (response.has_solution()) best_.offer(formulation.plan(response.solution));
    return response;
  }

  /// Solve progress (figure 5 of the paper): counter `phase2_at_1234_ms` is the duration found after 1234 ms.
  void point(const std::string& phase, double seconds, std::int64_t objective) {
    count(phase + "_at_" + std::to_string(static_cast<std::int64_t>(1e3 * seconds)) + "_ms", objective);
  }

  void record(const std::string& phase) {
    point(phase, limits_.seconds(),
          phase == "phase1" ? best_.cost().peak.count() : best_.cost().duration.count());
  }

  bool may_search_neighbourhoods(const AdaptiveSize& size) {
    const auto reruns = std::count(shape_.rerun_useful.begin(), shape_.rerun_useful.end(), true);
    return options_.neighbourhoods && shape_.form == Form::kStage && !limits_.reached() &&
           size.failures() < std::max<std::int64_t>(8, reruns / 5);
  }

  cpsat::Parameters neighbourhood_parameters(Goal goal) {
    cpsat::Parameters p = parameters(goal);
    p.threads = 1;
    p.seed = random_.next();
    p.deterministic_seconds = 0.05;
    p.seconds = 2.0;
    return p;
  }

  /// Phase 1, one over-budget window of stages after the other: lowers the highest stage and raises none that
  /// is over the budget.
  bool lower_peak(Bytes budget) {
    AdaptiveSize size;
    Plan plan = best_.plan();
    std::int64_t solves = 0, steps = 0;
    for (; may_search_neighbourhoods(size); ++solves) {
      const Neighbourhoods near(graph_, shape_, plan);
      Window window;
      window.ceilings = near.levels();
      const auto top = std::max_element(window.ceilings.begin(), window.ceilings.end());
      const Bytes highest = *top;
      if (highest <= budget) break;
      const std::int64_t stage = top - window.ceilings.begin();
      const std::int64_t width = std::int64_t{1} << random_.below(7);
      window.first = std::max<std::int64_t>(0, stage - width);
      window.end = std::min<std::int64_t>(std::ssize(window.ceilings), stage + width + 1);
      for (Bytes& ceiling : window.ceilings) ceiling = std::max(ceiling, budget);
      const Shape shape = near.freed(near.around(stage, size.get(), random_));
      Formulation formulation(graph_, shape, Goal::kPeak, budget, highest, &window, &limits_);
      formulation.hint(plan);
      const cpsat::Response response = call(formulation, neighbourhood_parameters(Goal::kPeak));
      bool improved = false;
      if (response.has_solution()) {
        const Plan next = formulation.plan(response.solution);
        improved = excess(next, budget) < excess(plan, budget);
        if (improved) plan = next, ++steps;
      }
      size.learn(improved, response.status == cpsat::Status::kOptimal);
      if (best_.offer(plan)) record("phase1");
    }
    count("phase1_neighbourhoods", solves);
    count("phase1_steps", steps);
    return best_.cost().peak <= budget;
  }

  /// Sum over stages of their peak's excess over the budget.
  Wide excess(const Plan& plan, Bytes budget) const {
    const Neighbourhoods near(graph_, shape_, plan);
    Wide sum = 0;
    for (Bytes level : near.levels()) sum += std::max<std::int64_t>(0, (level - budget).count());
    return sum;
  }

  /// Phase 2 around one rerun of the best plan after the other.
  void save_reruns(Bytes budget) {
    AdaptiveSize size;
    std::int64_t solves = 0, steps = 0;
    for (; may_search_neighbourhoods(size); ++solves) {
      const Neighbourhoods near(graph_, shape_, best_.plan());
      if (!near.has_reruns()) break;
      const Shape shape = near.freed(near.around_some_rerun(size.get(), random_));
      Formulation formulation(graph_, shape, Goal::kDuration, budget, budget, nullptr, &limits_);
      formulation.hint(best_.plan());
      const cpsat::Response response = call(formulation, neighbourhood_parameters(Goal::kDuration));
      const bool improved = response.has_solution() && best_.offer(formulation.plan(response.solution));
      if (improved) record("phase2"), ++steps;
      size.learn(improved, response.status == cpsat::Status::kOptimal);
    }
    count("phase2_neighbourhoods", solves);
    count("phase2_steps", steps);
    count("phase2_neighbourhood_duration", best_.cost().duration.count());
  }

  /// Phase 1: true if it found a plan within the budget.
  bool minimize_peak(Bytes budget) {
    Formulation formulation(graph_, shape_, Goal::kPeak, budget, best_.cost().peak, nullptr, &limits_);
    const cpsat::Response response = solve(formulation, "phase1");
    const bool fits = best_.cost().peak <= budget;
    finished_ = response.status == cpsat::Status::kOptimal;
    if (problem_.objective == Objective::kTime && !fits && finished_ && formulation.exact_bytes()) {
      count("model_infeasible", 1);
      infeasible_ = !least_duration_outside(graph_, shape_);
    }
    return fits;
  }

  /// Phase 2.
  void minimize_duration(Bytes budget) {
    Formulation formulation(graph_, shape_, Goal::kDuration, budget, budget, nullptr, &limits_);
    const cpsat::Response response = solve(formulation, "phase2");
    finished_ = response.status == cpsat::Status::kOptimal;
    if (!formulation.exact_bytes() || !response.bound || problem_.objective == Objective::kPeak) return;
    Duration bound(formulation.real_objective(*response.bound));
    count("model_bound", bound.count());
    count("model_optimal", finished_ && formulation.exact_durations());
    // Plans outside the model limit the bound as well.
    if (const auto outside = least_duration_outside(graph_, shape_)) bound = std::min(bound, *outside);
    if (bound > graph_.base_duration) bound_ = {"retention_intervals", bound};
  }

  PlanResult finish() {
    PlanResult result = best_.result(std::move(counters_));
    result.duration_bound = std::move(bound_);
    if (infeasible_) {
      result.status = Status::kInfeasible;
      result.stopped_by = StoppedBy::kProof;
    } else if (!finished_) {
      limits_.reached();
      const auto at_work = limits_.has_work_limit() ? StoppedBy::kWork : StoppedBy::kTime;
      result.stopped_by = limits_.stopped_by().value_or(at_work);
    }
    return result;
  }

  void count(std::string name, std::int64_t value) { counters_.emplace_back(std::move(name), value); }

  const Graph& graph_;
  const Problem& problem_;
  const Options& options_;
  const PlanOptions& common_;
  Limits& limits_;
  Shape shape_;
  Incumbent best_;
  Random random_;
  Counters counters_;
  DurationBound bound_;
  bool infeasible_ = false;  ///< proved
  bool finished_ = false;    ///< the last solve ended with a proof
};

std::optional<std::string> supports(const Problem& problem) {
  if (const auto reason = cpsat::unavailable()) return reason;
  if (problem.graph->num_ops() > kMostOps) {
    return "it takes at most " + std::to_string(kMostOps) + " ops, and the graph has " +
           std::to_string(problem.graph->num_ops());
  }
  return std::nullopt;
}

PlanResult plan(const Problem& problem, const Options& options, const PlanOptions& common, Limits& limits) {
  return Phases(problem, options, common, limits).run();
}

}  // namespace

PlannerInfo info() {
  const auto table = OptionTable<Options>("moccasin")
                         .integer("c", &Options::c, 1, 64, "runs",
                                  "maximum number of runs of one op; more if a start plan has more")
                         .choice("form", &Options::form, {"auto", "stage", "events"},
                                 "form of the model; auto: stage in fixed order, events in free order")
                         .choice("warm_start", &Options::warm_start, {"none", "greedy", "tw_remat", "search"},
                                 "planner whose plan the search starts from")
                         .flag("presolve", &Options::presolve, "presolve of CP-SAT")
                         .flag("linearization", &Options::linearization, "linear relaxation of CP-SAT")
                         .flag("neighbourhoods", &Options::neighbourhoods,
                               "first solve small models with most ops pinned; off: as published");
  return with_options(
      {"moccasin", "retention intervals solved by constraint programming (needs OR-tools)",
       "given time, the least duration with at most c runs of each op; optimal only where that covers "
       "every plan",
       "Bartan et al. 2023 (MOCCASIN)", supports},
      table, plan);
}

}  // namespace remat::moccasin
