#include "planners/auto/schedule.h"

#include <algorithm>
#include <optional>

#include "base/numbers.h"
#include "planners/auto/arms.h"

namespace remat::automatic {
namespace {

/// Rounds, each as long as all before it together: what is found within a limit is found again, by the same
/// calls, within twice that.
class Rounds {
 public:
  /// A single one where not `several`.
  Rounds(const Options& options, const Limits& limits, bool several)
      : limits_(limits),
        work_(total(limits.work_left(), limits.work())),
        seconds_(total(limits.seconds_left(), limits.seconds())) {
    if (!several || (!work_ && !seconds_)) return;
    double length = work_ ? real(*work_) / (kWorkPerSecond * options.round_seconds) : kMost;
    if (seconds_) length = std::min(length, *seconds_ / options.round_seconds);
    for (; length >= 2; length /= 2) ++count_;
  }

  int count() const { return count_; }

  /// Ends `part`, nested in the limits, where the round (from 1) ends.
  void end(Limits& part, int round) const {
    const std::int64_t share = std::int64_t{1} << (count_ - round);
    if (work_) part.set_work(std::max<std::int64_t>(0, *work_ / share - limits_.work()));
    if (seconds_) part.set_time(*seconds_ / real(share) - limits_.seconds());
  }

 private:
  static constexpr double kMost = 1e9;  ///< as lengths of the first

  template <class T>
  static std::optional<T> total(std::optional<T> left, T spent) {
    return left ? std::optional(*left + spent) : std::nullopt;
  }

  const Limits& limits_;
  std::optional<std::int64_t> work_;  ///< in all, from the construction of the limits
  std::optional<double> seconds_;
  int count_ = 1;
};

/// Who is called when, and for which share of what is left of the round.
class Schedule {
 public:
  Schedule(const Problem& problem, const Options& own, const PlanOptions& options, Limits& limits)
      : problem_(problem), own_(own), limits_(limits), arms_(problem, options, limits) {}

  PlanResult run() {
    arms_.plan("keep_all", 1);
    problem_.objective == Objective::kTime ? least_time() : least_peak();
    search(1);
    const auto reason = limits_.stopped_by();
    return arms_.result(reason || !is_too_late_ ? reason : StoppedBy::kTime);
  }

 private:
  void least_time() {
    // On large graphs first plans take as long as a round.
    const Rounds rounds(own_, limits_, !is_large());
    for (int round = 1; round <= rounds.count() && !arms_.done(); ++round) {
      Limits part(limits_, 1);
      rounds.end(part, round);
      arms_.begin_round(round, part);
      const Duration before = arms_.best().cost.duration;
      const bool had_plan = arms_.has_plan();
      begin(round);
      raise_bound(bound_share());
      improve(1 - own_.turn);
      improve(1);
      is_stuck_ = round > 1 && had_plan && arms_.best().cost.duration == before;
      arms_.begin_round(round, limits_);
    }
  }

  /// Of a round that gained nothing the next one is a restart.
  void begin(int round) {
    if (problem_.order == OrderMode::kFree && arms_.has_gained_by_order() && may_cut()) {
      arms_.find_order(own_.order);
    }
    if (round == 1) {
      first_plans();
    } else if (is_stuck_) {
      restart();
    } else {
      if (!arms_.has_plan() && rounds_without_plan_++ > 0) lower_peak();
      improve(own_.turn);
    }
  }

  void first_plans() {
    arms_.plan("retention", 2 * own_.turn);
    for (const char* planner : {"rotor", "greedy", "tw_remat"}) {
      if (!arms_.has_plan()) arms_.plan(planner, 2 * own_.turn, first_plan_call(planner));
    }
    if (is_small()) raise_bound(own_.turn);  // on some it is the proof, and no other arm needs to run
    if (may_cut()) {
      search(own_.turn);
      lns(own_.turn);
    }
    if (!arms_.has_plan()) arms_.plan("evict", own_.turn);
  }

  /// Rotor has as many plans as there are views of a graph as a chain.
  static Call first_plan_call(std::string_view planner) {
    Call call;
    if (planner == "rotor") call.set["first"] = "on";
    return call;
  }

  /// From nothing: plans over the budget from which nothing led within it lead nowhere.
  void lower_peak() {
    arms_.plan("search", 2 * own_.turn,
               {.set = {{"peak_share", "1"}},
                .purpose = "_for_peak",
                .objective = Objective::kPeak,
                .starts = Call::kNone});
  }

  /// By lns and by search in turn: what begins from the best plan stays near it.
  void restart() {
    Call call = search_call();
    call.purpose = "_restart";
    call.starts = Call::kOthers;
    const bool by_lns = may_cut() && restarts_++ % 2 == 0;
    by_lns ? arms_.plan("lns", own_.turn, {.purpose = call.purpose, .starts = call.starts})
           : arms_.plan("search", own_.turn, call);
  }

  /// From the best plan, by lns or search: whichever gained more for its work in its last call; where neither
  /// did, the one that was not called last.
  void improve(double share) {
    if (!may_cut()) return share == 1 ? search(share) : void();
    const double by_lns = arms_.gain("lns"), by_search = arms_.gain("search");
    const bool is_level = by_lns == by_search;
    const bool takes_turns = problem_.order == OrderMode::kFixed;  // cuts seldom gain in free order
    const bool is_lns = is_level ? takes_turns && arms_.was_last("search") : by_lns > by_search;
    is_lns ? lns(share) : search(share);
  }

  /// Of a round: all but a turn where the others gain nothing. What is left there is the proof.
  double bound_share() const {
    const bool gains = arms_.gain("lns") > 0 || arms_.gain("search") > 0;
    return gains ? own_.turn : 1 - own_.turn;
  }

  void raise_bound(double share) {
    if (problem_.order != OrderMode::kFixed) return;
    const bool is_near = gap(arms_.best()) <= own_.bound_gap;
    const bool has_time = is_near && share * seconds_left() >= own_.bound_seconds_per_op * real(num_ops());
    if (is_small() || has_time) arms_.raise_bound(share);
  }

  void least_peak() {
    if (!may_cut()) return;
    const auto lower = [&](double share, OrderMode order, bool deep_chain) {
      Call call{.set = {{"peak_share", "1"}}, .order = order};
      if (!deep_chain) call.set["deep_chain"] = "off";
      arms_.plan("search", share, call);
    };
    // Its plans hold in free order too, where the search needs far longer to get as low.
    const bool is_free = problem_.order == OrderMode::kFree;
    const double share = is_free ? own_.turn : 2 * own_.turn;
    lower(share / 3, OrderMode::kFixed, false);  // some graphs end lower without what others need most
    if (is_free) lower(share, OrderMode::kFixed, true);
    lower(share, problem_.order, true);
    lns(own_.turn);
  }

  void lns(double share) { arms_.plan("lns", share); }

  /// On large graphs its state alone takes a good part of a second to make.
  void search(double share) {
    is_too_late_ =
        is_large() && arms_.has_plan() &&
        arms_.round_limits().seconds_left().value_or(1e9) < own_.search_seconds_per_op * real(num_ops());
    if (!is_too_late_) arms_.plan("search", share, search_call());
  }

  /// On large graphs the plans that search would make to begin from are those that are already here; on
  /// others that of retention where it is over the budget. Within it, retention is quick.
  Call search_call() const {
    Call call;
    const bool has_starts = is_large() && arms_.has_plan();
    if (has_starts || arms_.is_over_budget()) call.set["retention"] = "off";
    if (has_starts) call.set["constructive"] = "off";
    return call;
  }

  std::int64_t num_ops() const { return std::ssize(problem_.graph->duration); }
  bool is_large() const { return num_ops() >= own_.large_ops; }
  bool is_small() const { return num_ops() <= own_.proof_ops; }
  bool may_cut() const { return num_ops() <= own_.lns_ops; }

  double seconds_left() const {
    const Limits& left = arms_.round_limits();
    return left.seconds_left().value_or(real(left.work_left().value_or(0)) / kWorkPerSecond);
  }

  const Problem& problem_;
  const Options& own_;
  Limits& limits_;
  Arms arms_;
  int rounds_without_plan_ = 0;
  int restarts_ = 0;
  bool is_stuck_ = false;     ///< the last round gained nothing
  bool is_too_late_ = false;  ///< for a search, which would outlast the limit
};

}  // namespace

PlanResult run_schedule(const Problem& problem, const Options& own, const PlanOptions& options,
                        Limits& limits) {
  return Schedule(problem, own, options, limits).run();
}

}  // namespace remat::automatic
