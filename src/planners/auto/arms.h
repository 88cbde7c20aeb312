// What auto calls: planners and bounds, each with the best plan and the bounds of those before it.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "bounds/moments.h"
#include "planning/options.h"
#include "remat/planner.h"

namespace remat::automatic {

/// How a planner is called where that is not as the problem was asked.
struct Call {
  std::map<std::string, std::string> set = {};
  std::string_view purpose = "";  ///< behind its name in the log
  std::optional<OrderMode> order = {};
  std::optional<Objective> objective = {};  ///< the least peak whatever the budget is
  enum { kBest, kOthers, kNone } starts = kBest;
};

/// The best result so far, and a line of the log for each call.
class Arms {
 public:
  Arms(const Problem& problem, const PlanOptions& options, Limits& limits)
      : problem_(problem), options_(options), limits_(limits), moments_(*problem.graph, problem.budget) {}

  /// What is called from here on ends with `limits`, and shares are of what is left of them.
  void begin_round(int number, Limits& limits) {
    round_ = number;
    round_limits_ = &limits;
  }

  /// Nothing where the planner does not support the problem, and once all is done.
  void plan(std::string_view planner, double share, const Call& call = {});
  /// An order that nothing runs twice in, as a start of what comes after, within the budget or not.
  void find_order(double share);
  /// May end in a faster plan, and in the proof that there is none. Only with a plan.
  void raise_bound(double share);

  const PlanResult& best() const { return best_; }
  bool has_plan() const { return remat::has_plan(best_); }
  /// Proved, near enough to the bound, or the round is over.
  bool done() const;
  /// Duration that the last call of a planner gained, by unit of work (without a work limit: by second). A
  /// first plan gains more than any faster one.
  double gain(std::string_view planner) const;
  bool was_last(std::string_view planner) const { return last_ == planner; }
  /// Retention found a plan, but over the budget.
  bool is_over_budget() const { return over_budget_.has_value(); }
  /// The last order needs less memory than keep-all.
  bool has_gained_by_order() const { return has_gained_by_order_; }
  const Limits& round_limits() const { return *round_limits_; }

  /// `reason` where nothing else ended it.
  PlanResult result(std::optional<StoppedBy> reason);

 private:
  std::vector<Plan> starts(const Call& call) const;
  PlanResult run(std::string_view planner, const Call& call, Limits& part);
  void take(PlanResult result);
  void take(std::optional<Plan> faster, DurationBound bound);
  bool is_good_enough() const;
  void note_proof();
  void report() const;
  std::optional<LoggedPlan> logged() const;
  void log(std::string arm, std::optional<LoggedPlan> before, const Limits& part);

  const Problem& problem_;
  const PlanOptions& options_;
  Limits& limits_;
  Limits* round_limits_ = &limits_;
  int round_ = 1;
  Moments moments_;
  PlanResult best_;
  std::optional<Plan>
      over_budget_;            ///< of retention: often the faster one by far, and near enough to descend
  std::optional<Plan> order_;  ///< over the budget, nothing twice
  bool has_gained_by_order_ = true;
  std::map<std::string, double, std::less<>> gains_;
  std::string last_;
  std::uint64_t calls_ = 0;
  std::vector<LogEntry> log_;
};

}  // namespace remat::automatic
