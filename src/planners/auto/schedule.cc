#include "planners/auto/schedule.h"

#include <algorithm>
#include <iterator>
#include <limits>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/numbers.h"
#include "bounds/moments.h"
#include "planners/auto/options.h"
#include "planners/auto/rounds.h"
#include "planners/search/search.h"
#include "planning/objective.h"
#include "remat/keep_all.h"

namespace remat::automatic {
namespace {

constexpr double kWorkPerSecond = 1e7;  ///< about

using Settings = std::map<std::string, std::string>;

/// The best result so far, and every plan as a start for what comes after.
class Schedule {
 public:
  Schedule(const Problem& problem, const PlanOptions& options, Limits& limits)
      : problem_(problem),
        options_(options),
        own_(table().read(options)),
        limits_(limits),
        starts_(problem.starts.begin(), problem.starts.end()),
        moments_(*problem.graph, problem.budget) {}

  PlanResult run() {
    plan_with("keep_all", 1);
    if (problem_.objective == Objective::kTime) {
      go_rounds();
    } else if (num_ops() <= own_.lns_ops) {
      const Settings for_peak{{"peak_share", "1"}};
      // Its plans hold in free order too, where the search needs far longer to get as low.
      const bool is_free = problem_.order == OrderMode::kFree;
      const double share = is_free ? own_.search_for_peak / 2 : own_.search_for_peak;
      // Some graphs end lower without what others need most.
      plan_with("search", share / 3, {{"peak_share", "1"}, {"deep_chain", "off"}}, OrderMode::kFixed,
                Objective::kPeak);
      if (is_free) plan_with("search", share, for_peak, OrderMode::kFixed, Objective::kPeak);
      plan_with("search", share, for_peak);
      plan_with("lns", own_.lns_for_peak);
    }
    search(1);
    auto reason = limits_.stopped_by();
    if (!reason && too_late_) reason = StoppedBy::kTime;
    const bool is_proved = best_.status == Status::kOptimal || best_.status == Status::kInfeasible;
    if (is_good_enough()) reason = StoppedBy::kGap;
    if (reason && !is_proved) best_.stopped_by = *reason;
    best_.counters.insert(best_.counters.begin(), called_.begin(), called_.end());
    return std::move(best_);
  }

 private:
  void go_rounds() {
    // On large graphs first plans take as long as a round.
    const Rounds rounds(own_, limits_, num_ops() < own_.large_ops);
    for (int round = 1; round <= rounds.count() && !done(); ++round) {
      Limits part(limits_, 1);
      rounds.end(part, round);
      now_ = &part;
      const Duration before = best_.cost.duration;
      round == 1 ? first_round() : later_round();
      is_stuck_ = round > 1 && has_plan(best_) && best_.cost.duration == before;
      now_ = &limits_;
    }
  }

  void first_round() {
    first_plans();
    search_and_prove();
    if (wants_cuts()) take_turn(own_.late_turn);
    take_turn(1);
  }

  /// Where the round before changed nothing, one begins anew.
  void later_round() {
    find_order();
    const bool is_lost = !has_plan(best_) && times_without_++ > 0;
    if (is_lost) lower_peak(own_.lower_peak);
    is_stuck_ ? begin_anew(is_near() ? own_.anew_near : own_.anew) : take_turn(own_.turn);
    raise_bound();
    if (wants_cuts()) take_turn(own_.late_turn);
    take_turn(1);
  }

  /// From nothing: plans over the budget from which nothing led within it lead nowhere.
  void lower_peak(double share) {
    starts_.clear();
    plan_with("search", share, {{"peak_share", "1"}}, problem_.order, Objective::kPeak);
    update_starts();
  }

  void begin_anew(double share) {
    if (!wants_cuts()) return search(share);
    starts_.clear();
    add_starts_over_budget();
    times_anew_++ % 2 == 0 ? by_cuts(share) : search(share);
    update_starts();
  }

  void first_plans() {
    plan_with("retention", num_ops() < own_.large_ops ? own_.retention : own_.large_retention);
    find_order();
    // Chains at low budgets; the search from these plans costs more the larger the graph is.
    if (!has_plan(best_)) {
      plan_with("rotor", own_.first_chain, {{"first", "on"}});
    } else if (gap(best_) > own_.chain_gap) {
      plan_with("rotor", own_.chain);
    }
    if (!has_plan(best_)) plan_with("greedy", own_.greedy);
    // On large graphs most of its share goes into erasing what its long plans run twice.
    if (!has_plan(best_) || gap(best_) > own_.tree_gap) plan_with("tw_remat", own_.tree);
    if (!has_plan(best_) && num_ops() > own_.lns_ops) plan_with("evict", own_.evict);
  }

  /// Free order: one that needs less memory by itself. Recomputations chosen from there differ from those
  /// that any move makes of a plan.
  void find_order() {
    if (problem_.order != OrderMode::kFree || !order_gains_ || num_ops() > own_.lns_ops || done()) return;
    Limits part(*now_, own_.order);
    Problem problem = problem_;
    problem.starts = {};
    PlanResult result = call(find_planner("search"), problem, search::only_first_runs(), problem_.order,
                             problem_.objective, part);
    if (!result.plan) return;
    const double before = real(keep_all_peak(*problem_.graph));
    order_gains_ = real(result.cost.peak) <= (1 - own_.order_gain) * before;
    if (has_plan(result)) {
      carry_over(result);
      if (better(problem_, result, best_)) best_ = std::move(result);
    } else if (order_gains_) {
      order_ = std::move(result.plan);
    }
    update_starts();
  }

  /// Where several moments bind and retention, which sees one at a time, is not near the bound.
  bool wants_cuts() const {
    const bool is_there = has_plan(best_) && gap(best_) <= own_.lns_gap;
    return !is_there && num_ops() <= own_.lns_ops;
  }
  void by_cuts(double share) {
    if (wants_cuts()) plan_with("lns", share);
  }

  /// Further from the bound than one moment can tell: the program over few moments tells more than all of it.
  bool is_far() const { return gap(best_) > own_.proof_gap; }

  /// Small enough for the integer program.
  bool is_small() const { return problem_.order == OrderMode::kFixed && num_ops() <= own_.proof_ops; }

  /// Where integer programs raise the bound most.
  bool is_near() const { return is_small() && has_plan(best_) && !is_far(); }

  /// Of a long limit the search of a small graph needs little.
  double share_before_proof() const {
    const bool is_long = now_->seconds_left().value_or(own_.long_seconds) >= own_.long_seconds;
    return is_long ? own_.search_before_proof : own_.short_search_before_proof;
  }

  void search_and_prove() {
    if (is_small() && has_plan(best_)) {
      by_cuts(share_before_proof() / 2);
      search(share_before_proof());
      if (is_provable()) return bound_and_prove();
    }
    compete();
    raise_bound();
  }

  void raise_bound() {
    if (problem_.order != OrderMode::kFixed) return;
    if (is_small()) return is_provable() ? bound_and_prove() : bound(early(own_.small_bound));
    const double seconds =
        now_->seconds_left().value_or(real(now_->work_left().value_or(0)) / kWorkPerSecond);
    const double share = early(own_.bound);
    if (share * seconds >= own_.bound_seconds_per_op * real(num_ops())) bound(share);
  }

  /// Of a share of the bound: where plans still become faster, their search gets more.
  double early(double share) const {
    if (is_stuck_) return share;
    return share * (is_near() ? own_.early_near : own_.early);
  }

  /// Few moments prove in a second what the whole program, where it is not solved, does not.
  void bound_and_prove() {
    if (num_ops() > own_.sure_proof_ops) bound(early(own_.bound_before_proof));
    prove(own_.proof);
  }

  bool is_provable() const { return !is_far() || num_ops() <= own_.sure_proof_ops; }

  /// Which of search and lns gains more is another one from graph to graph, and from plan to plan: on dense
  /// graphs a long search, from plans over the budget; where deep chains run again, cuts.
  void compete() {
    if (!wants_cuts()) return;
    search(own_.search_turn);
    by_cuts(own_.lns_turn);
    // Where a plan is at hand the others improve it faster than evict does.
    if (!has_plan(best_)) plan_with("evict", own_.evict);
    if (wants_cuts()) take_turn(own_.turn);
  }

  /// Of the one that gained more for its time; where neither did, of the one that was not called last. In
  /// free order, where cuts seldom gain, of search.
  void take_turn(double share) {
    if (!wants_cuts()) return search(share);
    const double cuts = pace_["lns"], moves = pace_["search"];
    if (cuts > moves || (cuts == moves && last_called_ == "search" && problem_.order == OrderMode::kFixed)) {
      by_cuts(share);
    } else {
      search(share);
    }
  }

  bool done() {
    return best_.status == Status::kOptimal || best_.status == Status::kInfeasible ||
           (best_.plan && now_->reached()) || is_good_enough();
  }

  bool is_good_enough() const {
    return best_.plan && remat::is_good_enough(problem_, best_.cost, best_.duration_bound.duration, limits_);
  }

  std::int64_t num_ops() const { return std::ssize(problem_.graph->duration); }

  /// On large graphs its state alone takes a good part of a second to make.
  void search(double share) {
    const double to_begin = own_.search_seconds_per_op * real(num_ops());
    const bool is_large = num_ops() >= own_.large_ops;
    if (is_large && has_plan(best_) && now_->seconds_left().value_or(to_begin) < to_begin) {
      too_late_ = true;
      return;
    }
    plan_with("search", share, search_options());
  }

  /// On large graphs the plans that search would make to begin from are those that are already here; on
  /// others that of retention where it is over the budget. Within it, retention is quick.
  Settings search_options() const {
    Settings set;
    const bool is_large = num_ops() >= own_.large_ops && has_plan(best_);
    if (is_large || over_budget_) set["retention"] = "off";
    if (is_large) set["constructive"] = "off";
    return set;
  }

  void plan_with(std::string_view name, double share, const Settings& set = {}) {
    plan_with(name, share, set, problem_.order, problem_.objective);
  }

  void plan_with(std::string_view name, double share, const Settings& set, OrderMode order,
                 Objective objective) {
    if (done()) return;
    Limits part(*now_, share);
    Problem problem = problem_;
    problem.starts = starts_;
    const PlannerInfo& planner = find_planner(name);
    if (planner.supports(problem)) return;
    const bool had_plan = has_plan(best_);
    const Duration before = best_.cost.duration;
    PlanResult result = call(planner, problem, set, order, objective, part);
    last_called_ = name;
    if (name == "retention" && !has_plan(result)) over_budget_ = result.plan;
    if (result.known && best_.plan) {
      result.planner = best_.planner;
      result.known = best_.known;
    }
    if (best_.plan) carry_over(result);
    if (!best_.plan || better(problem, result, best_) || result.status == Status::kInfeasible) {
      best_ = std::move(result);
      report();
    } else {
      best_.counters = std::move(result.counters);
      if (best_.status != Status::kOptimal) best_.stopped_by = result.stopped_by;
    }
    update_starts();
    constexpr double kLeastSpent = 1e-6;
    // A first plan gains more than any faster one.
    const double gained = had_plan          ? real(before - best_.cost.duration)
                          : has_plan(best_) ? std::numeric_limits<double>::max()
                                            : 0;
    const double spent = limits_.has_work_limit() ? real(part.work()) : part.seconds();
    pace_[std::string(name)] = gained / std::max(kLeastSpent, spent);
  }

  PlanResult call(const PlannerInfo& planner, const Problem& problem, const Settings& set, OrderMode order,
                  Objective objective, Limits& part) {
    // A second call of the same planner must not walk the same way.
    const PlanOptions options{options_.seed + calls_++, options_.threads, set};
    PlanResult result = make_plan_with(
        problem, planner.name,
        [&](Problem bounded, Limits& inner) {
          std::vector<Plan> starts;
          if (order != problem.order) {  // what is valid in free order may not be in fixed order
            std::ranges::copy_if(problem.starts, std::back_inserter(starts),
                                 [&](const Plan& start) { return !validate(*problem.graph, start, order); });
            bounded.starts = starts;
          }
          bounded.order = order;
          if (objective == Objective::kPeak) bounded.budget = kNoBudget;
          bounded.objective = objective;
          return planner.run(bounded, options, inner);
        },
        part);
    const std::string name(planner.name);
    note(objective == problem_.objective ? name : name + "_for_peak", part);
    return result;
  }

  void update_starts() {
    if (!best_.plan) return;
    starts_.assign(1, *best_.plan);
    add_starts_over_budget();
  }

  /// The plan of retention: often the faster one by far, and near enough to descend from. And an order, free
  /// order's.
  void add_starts_over_budget() {
    if (over_budget_ && has_plan(best_)) starts_.push_back(*over_budget_);
    if (order_) starts_.push_back(*order_);
  }

  /// What was proved before stays proved.
  void carry_over(PlanResult& result) const {
    if (best_.duration_bound.duration > result.duration_bound.duration)
      result.duration_bound = best_.duration_bound;
  }

  void prove(double share) {
    if (done() || !has_plan(best_)) return;
    Limits part(*now_, share);
    Proof proof = prove_optimal(*problem_.graph, problem_.budget, problem_.order, *best_.plan, part);
    note("prove_optimal", part);
    take_plan(std::move(proof.plan));
    take_bound(std::move(proof.bound));
    if (proof.optimal) {
      best_.status = Status::kOptimal;
      best_.stopped_by = StoppedBy::kProof;
    }
  }

  void bound(double share) {
    if (done() || !has_plan(best_)) return;
    Limits part(*now_, share);
    DurationBound proved = best_.duration_bound;
    std::optional<Plan> faster = moments_.raise(best_.cost.duration, part, proved);
    note("moments", part);
    take_plan(std::move(faster));
    take_bound(std::move(proved));
  }

  /// Of an integer program.
  void take_plan(std::optional<Plan> faster) {
    if (!faster) return;
    best_.plan = std::move(faster);
    best_.cost = simulate(*problem_.graph, *best_.plan);
    best_.planner = "stage_milp";
    update_starts();
  }

  void report() const {
    if (!best_.plan) return;
    limits_.report({best_.planner, limits_.seconds(), best_.cost.peak, best_.cost.duration, has_plan(best_)});
  }

  void note(std::string_view name, const Limits& part) {
    called_.emplace_back("auto." + std::to_string(called_.size() + 1) + "." + std::string(name), part.work());
  }

  void take_bound(DurationBound bound) {
    if (bound.duration <= best_.duration_bound.duration) return;
    best_.duration_bound = std::move(bound);
    if (best_.duration_bound.duration != best_.cost.duration) return;
    best_.status = Status::kOptimal;
    best_.stopped_by = StoppedBy::kProof;
  }

  const Problem& problem_;
  const PlanOptions& options_;
  const Options own_;
  Limits& limits_;
  Limits* now_ = &limits_;  ///< of the round at hand
  std::vector<Plan> starts_;
  Moments moments_;
  std::uint64_t calls_ = 0;
  std::map<std::string, double> pace_;  ///< what the last call of each planner gained, by what it spent
  std::string last_called_;
  std::optional<Plan> over_budget_;  ///< of retention, where it found none within it
  std::optional<Plan> order_;        ///< over the budget, nothing twice
  bool order_gains_ = true;
  Counters called_;  ///< what was called, in sequence, and the work that it took
  PlanResult best_;
  int times_without_ = 0;  ///< a plan, in later rounds
  int times_anew_ = 0;
  bool is_stuck_ = false;  ///< the last round gained nothing
  bool too_late_ = false;  ///< for a search, which would outlast the limit
};

}  // namespace

PlanResult run_schedule(const Problem& problem, const PlanOptions& options, Limits& limits) {
  return Schedule(problem, options, limits).run();
}

}  // namespace remat::automatic
