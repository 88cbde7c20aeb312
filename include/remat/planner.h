// One call for every planner: takes a problem and limits, returns a checked result.
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

/// The input of a planner. The graph must outlive it.
struct Problem {
  const Graph* graph = nullptr;
  /// Resident inputs included. Objective::kPeak minimizes the peak whatever the budget is, but a plan over
  /// the budget does not count as found.
  Bytes budget = kNoBudget;
  OrderMode order = OrderMode::kFixed;
  Objective objective = Objective::kTime;
  /// Known plans, valid in this order, within the budget or not. Planners may start from them, and the shared
  /// entry point never returns a worse plan. They must outlive the problem.
  std::span<const Plan> starts = {};
  /// If set, plans may copy values to the host and back.
  std::optional<Host> host = std::nullopt;
  /// If set, `best_peak_bound` of this graph and order, so that nested calls do not prove it again.
  const PeakBound* peak_bound = nullptr;
  /// The same for `cheap_duration_bound` at this budget.
  const DurationBound* duration_bound = nullptr;
  /// If set, the bytes that a plan of this cost takes from an allocator, never less than its peak. Planner
  /// `lns` keeps these within the budget; other planners and `PlanResult` use the peak.
  const std::function<Bytes(const Plan& plan, const Simulation& cost, Limits& limits)>* footprint = nullptr;
};

/// What is proved in the order mode of the problem. `kOptimal`: no valid plan within the budget is faster.
/// `kFeasible`: a plan within the budget. `kInfeasible`: proved that none exists. `kUnknown`: none found,
/// nothing proved; a time-out without a plan is always this, never infeasible.
enum class Status { kOptimal, kFeasible, kInfeasible, kUnknown };
std::string_view to_string(Status status);

/// Counters of a planner, in the order in which they are printed.
using Counters = std::vector<std::pair<std::string, std::int64_t>>;

/// Cost of the incumbent, within the budget or over it.
struct LoggedPlan {
  Duration duration;
  Bytes peak;
  bool within_budget = false;
  friend bool operator==(const LoggedPlan&, const LoggedPlan&) = default;
};

/// One call of planner `auto`: of a planner, for a bound or for a proof.
struct LogEntry {
  double seconds = 0;     ///< from the begin of the limits to the end of the call
  std::int64_t work = 0;  ///< units that the call took
  int round = 1;
  std::string arm;                          ///< the planner that was called, or "bound"
  std::optional<LoggedPlan> before, after;  ///< the incumbent; none before the first plan
  Duration bound;                           ///< lower bound on the duration after the call
  friend bool operator==(const LogEntry&, const LogEntry&) = default;
};

/// (duration - bound) / bound after the call; nothing while no plan is within the budget.
std::optional<double> gap(const LogEntry& entry);

struct PlanResult {
  Status status = Status::kUnknown;
  StoppedBy stopped_by = StoppedBy::kTarget;
  std::string planner;  ///< the one that made `plan`
  bool known = false;   ///< `plan` is one of `Problem::starts`, and `planner` is no planner
  OrderMode order = OrderMode::kFixed;
  /// The best plan found. Within the budget if `status` is optimal or feasible; otherwise the one with the
  /// smallest peak, for display only.
  std::optional<Plan> plan;
  Simulation cost;  ///< of `plan`, by the reference simulator
  PeakBound peak_bound;
  DurationBound duration_bound;
  Counters counters;
  std::vector<LogEntry> log;  ///< calls of planner `auto`, in sequence
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

/// True if `a` is better than `b`, by the reference simulator: a plan within the budget first, then the
/// objective; of plans over the budget, the smaller peak.
bool better(const Problem& problem, const PlanResult& a, const PlanResult& b);

/// Marks `result.plan` as one of `Problem::starts`.
void mark_known(PlanResult& result);

/// (duration - bound) / bound of a result that has a plan.
double gap(const PlanResult& result);

/// Options of every planner; `set` holds planner-specific ones by name (`tw_remat` takes "k").
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
/// Spells an option with a value as users write it, or the option alone if the value is empty.
using Spelling = std::function<std::string(std::string_view option, std::string_view value)>;

/// The values that an option takes: "[0, 1]", "on, off" or the choices; empty for any text.
std::string values_of(const OptionInfo& option);

/// Nothing: of a planner that supports every problem.
std::optional<std::string> supports_all(const Problem& problem);

/// A registered planner. `run` may leave `cost`, bounds and `seconds` to the shared entry point.
struct PlannerInfo {
  std::string name;
  std::string description;  ///< one line
  std::string guarantee;    ///< one line: what is promised, e.g. "none; may miss its budget"
  std::string source;       ///< paper or "Remat"
  /// Nothing if the problem is supported, else the reason in one line.
  std::function<std::optional<std::string>(const Problem& problem)> supports = supports_all;
  std::function<PlanResult(const Problem& problem, const PlanOptions& options, Limits& limits)> run = {};
  /// True if the planner improves `Problem::starts`: callers should pass the plans they have. False for
  /// baselines, which are measured on their own plans.
  bool improves_starts = false;
  /// The options that `PlanOptions::set` may hold.
  std::vector<OptionInfo> options = {};
  /// `run` reads and checks `PlanOptions::set` itself, and takes more than `options` lists.
  bool takes_any_option = false;
};

/// All planners: those of Remat in the order of src/registry/registry.cc, the only file that names them all,
/// then registered ones. src/planners/auto/schedule.cc says which of them `auto` runs.
std::span<const PlannerInfo> planners();
/// Throws UsageError with the known names.
const PlannerInfo& find_planner(std::string_view name);

inline constexpr std::size_t kMostRegistered = 100;

/// Adds a user's planner, or replaces the one registered under this name. Its plans are checked like all
/// others. Not while another thread plans. Throws UsageError for the name of one of Remat's planners, for a
/// name with characters other than letters, digits, '_', '-' and '.', and if kMostRegistered planners are
/// registered.
void register_planner(PlannerInfo planner);

/// The shared entry point. If the bounds prove that no plan fits, says so; otherwise runs the planner and
/// confirms its plan with the validator and the reference simulator. Throws UsageError for a problem that the
/// planner does not support or an option that it does not know, std::logic_error if a planner's plan is not
/// what the planner claims (a bug of the planner). `stopped_by` comes from `limits` unless the planner sets
/// it.
PlanResult make_plan(const Problem& problem, std::string_view planner, const PlanOptions& options,
                     Limits& limits);

/// The same for a planner that is not registered, such as a registered one with parts of the user. The caller
/// checks before whether it supports the problem.
PlanResult make_plan_with(const Problem& problem, std::string_view name,
                          const std::function<PlanResult(const Problem&, Limits&)>& run, Limits& limits);

/// For an unsolved `problem`, the smallest budget known to work: the least peak of `result` and of a short
/// search for it, within a quarter of what is left of `limits` and at most five seconds. The search starts
/// from the plans of `store` and adds its own, so that a later request for that budget finds it.
std::optional<Bytes> smallest_known_budget(const Problem& problem, const PlanResult& result,
                                           const PlanOptions& options, Limits& limits,
                                           PlanStore* store = nullptr);

}  // namespace REMAT_API remat
