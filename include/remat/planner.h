// One call for every planner: a problem and limits go in, a checked result comes out.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "remat/bounds.h"
#include "remat/export.h"
#include "remat/graph.h"
#include "remat/limits.h"
#include "remat/plan.h"

namespace REMAT_API remat {

class PlanStore;

/// Time: least duration within the budget. Peak: least peak, then the least duration at it; with a budget,
/// that peak has to be within it.
enum class Objective { kTime, kPeak };
std::string_view to_string(Objective objective);

/// No plan of any graph needs more.
inline constexpr Bytes kNoBudget{kMaxCount - 1};

/// What is asked. The graph must outlive it.
struct Problem {
  const Graph* graph = nullptr;
  /// Resident inputs included. Objective::kPeak minimizes the peak whatever the budget is, but a plan over
  /// the budget is no answer there either.
  Bytes budget = kNoBudget;
  OrderMode order = OrderMode::kFixed;
  Objective objective = Objective::kTime;
  /// Plans known before, valid in this order, within the budget or not. Planners may start from them, and
  /// the shared entry point never answers with a worse one. They must outlive the problem.
  std::span<const Plan> starts = {};
  /// Where it is set, plans may copy values to it and back.
  std::optional<Host> host = std::nullopt;
  /// Where it is set, `best_peak_bound` of this graph and order, so that nested calls do not prove it again.
  const PeakBound* peak_bound = nullptr;
  /// The same for `cheap_duration_bound` at this budget.
  const DurationBound* duration_bound = nullptr;
  /// If set, the bytes that a plan of this cost takes by an allocator's rules, never less than its peak.
  /// Planner `lns` keeps these within the budget; the others, and `PlanResult`, go by the peak.
  const std::function<Bytes(const Plan& plan, const Simulation& cost, Limits& limits)>* footprint = nullptr;
};

/// What is proved about the model that `order` names. `kOptimal`: no valid plan within the budget is
/// faster. `kFeasible`: a plan within the budget. `kInfeasible`: proved that none exists. `kUnknown`:
/// none found, nothing proved; running out of time is always this, never infeasible.
enum class Status { kOptimal, kFeasible, kInfeasible, kUnknown };
std::string_view to_string(Status status);

/// Counters of a planner, in the order in which they are printed.
using Counters = std::vector<std::pair<std::string, std::int64_t>>;

/// What the best plan known costs, within the budget or over it.
struct LoggedPlan {
  Duration duration;
  Bytes peak;
  bool within_budget = false;
};

/// One call of planner `auto`: of a planner, for a bound or for a proof.
struct LogEntry {
  double seconds = 0;     ///< from the begin of the limits to the end of the call
  std::int64_t work = 0;  ///< units that the call took
  int round = 1;
  std::string arm;                          ///< the planner that was called, or "bound"
  std::optional<LoggedPlan> before, after;  ///< the best plan; none before the first
  Duration bound;                           ///< that no plan within the budget goes below, after the call
};

/// (duration - bound) / bound after the call, where there is a plan within the budget then.
std::optional<double> gap(const LogEntry& entry);

struct PlanResult {
  Status status = Status::kUnknown;
  StoppedBy stopped_by = StoppedBy::kTarget;
  std::string planner;  ///< the one that made `plan`
  bool known = false;   ///< `plan` is one of `Problem::starts`, and `planner` is no planner
  OrderMode order = OrderMode::kFixed;
  /// The best plan found. Within the budget where `status` is optimal or feasible; otherwise the one that
  /// came closest (smallest peak), to be shown and never to be run.
  std::optional<Plan> plan;
  Simulation cost;  ///< of `plan`, by the reference simulator
  PeakBound peak_bound;
  DurationBound duration_bound;
  Counters counters;
  std::vector<LogEntry> log;  ///< of planner `auto`: its calls, in sequence
  double seconds = 0;
};

/// True where a plan of this cost may be run.
inline bool within_budget(const Problem& problem, const Simulation& cost) {
  const bool fits_host = !problem.host || cost.traffic.host_peak <= problem.host->budget.value_or(kNoBudget);
  return cost.peak <= problem.budget && fits_host;
}

/// True where the result holds a plan that may be run.
inline bool has_plan(const PlanResult& r) {
  return r.status == Status::kOptimal || r.status == Status::kFeasible;
}

/// True where `a` is to be preferred to `b`, by the reference simulator: a plan within the budget first, then
/// the objective; among plans over the budget the smaller peak.
bool better(const Problem& problem, const PlanResult& a, const PlanResult& b);

/// Says that `result.plan` is one of `Problem::starts`.
void mark_known(PlanResult& result);

/// (duration - bound) / bound of a result that has a plan.
double gap(const PlanResult& result);

/// What every planner can be told; `set` holds planner-specific options by name (`tw_remat` takes "k").
struct PlanOptions {
  std::uint64_t seed = 0;
  int threads = 1;
  std::map<std::string, std::string> set;
};

enum class OptionType { kInteger, kNumber, kFlag, kChoice, kText };
std::string_view to_string(OptionType type);

/// Both ends included.
struct IntegerRange {
  std::int64_t low = 0, high = 0;
};
struct NumberRange {
  double low = 0, high = 0;
};

/// An option of a planner: an entry of `PlanOptions::set`.
struct OptionInfo {
  std::string name;
  OptionType type = OptionType::kText;
  std::string default_value;                                      ///< as text, as it would be given
  std::variant<std::monostate, IntegerRange, NumberRange> range;  ///< of integers and numbers
  std::vector<std::string> choices;                               ///< of choices
  std::function<void(const std::string& value)> check;            ///< of texts; throws UsageError
  std::string unit;                                               ///< empty for a pure number
  std::string description;                                        ///< one line
};
/// How users write an option with a value, or an option alone where the value is empty.
using Spelling = std::function<std::string(std::string_view option, std::string_view value)>;

/// The values that an option takes: "[0, 1]", "on, off" or the choices; empty for any text.
std::string values_of(const OptionInfo& option);

/// A registered planner. `run` may leave `cost`, bounds and `seconds` to the shared entry point.
struct PlannerInfo {
  std::string name;
  std::string description;  ///< one line
  std::string guarantee;    ///< one line: what is promised, e.g. "none; may miss its budget"
  std::string source;       ///< paper or "Remat"
  /// Nothing where the problem is supported, else one line that says why not.
  std::function<std::optional<std::string>(const Problem& problem)> supports;
  std::function<PlanResult(const Problem& problem, const PlanOptions& options, Limits& limits)> run;
  /// Improves on `Problem::starts`: callers that have plans of the graph should pass them. Baselines do not;
  /// they are measured on plans of their own.
  bool improves_starts = false;
  /// What `PlanOptions::set` may hold.
  std::vector<OptionInfo> options = {};
  /// `run` reads and checks `PlanOptions::set` itself, and takes more than `options` lists.
  bool takes_any_option = false;
};

/// All planners, in the order of src/registry/registry.cc, the only file that names them all, then those that
/// were registered. Which of them `auto` runs, and when, is its own schedule (src/planners/auto/schedule.cc).
std::span<const PlannerInfo> planners();
/// Throws UsageError with the known names.
const PlannerInfo& find_planner(std::string_view name);

inline constexpr std::size_t kMostRegistered = 100;

/// Adds a planner of a user's own, or replaces the one that was registered under this name: from then on
/// calls take it by name, and confirm its plans as all others. Not while another thread plans. Throws
/// UsageError for the name of a planner of Remat's, for a name that has other characters than letters,
/// digits, '_', '-' and '.', and where kMostRegistered are registered.
void register_planner(PlannerInfo planner);

/// The shared entry point. Answers from the bounds where they prove that no plan fits; otherwise runs the
/// planner and confirms its plan with the validator and the reference simulator. Throws UsageError for a
/// problem the planner does not support or an option it does not know, std::logic_error where a planner
/// returned a plan that is not what it claims (a bug of the planner). `stopped_by` comes from `limits` unless
/// the planner sets it.
PlanResult make_plan(const Problem& problem, std::string_view planner, const PlanOptions& options,
                     Limits& limits);

/// The same for a planner that is not registered, such as a registered one with parts of a user's own; `run`
/// must have been asked before whether it supports the problem.
PlanResult make_plan_with(const Problem& problem, std::string_view name,
                          const std::function<PlanResult(const Problem&, Limits&)>& run, Limits& limits);

/// The smallest budget that is known to work where `problem` was not solved: the least peak of `result` and
/// of a short search for it, within a quarter of what is left of `limits` and at most five seconds. A store
/// is where that search starts and where its plan is kept, so that a later request for that budget finds it.
std::optional<Bytes> smallest_known_budget(const Problem& problem, const PlanResult& result,
                                           const PlanOptions& options, Limits& limits,
                                           PlanStore* store = nullptr);

}  // namespace REMAT_API remat
