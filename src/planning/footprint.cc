#include "planning/footprint.h"

#include <algorithm>
#include <optional>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "remat/bounds.h"
#include "remat/check.h"
#include "remat/error.h"
#include "remat/store.h"

namespace remat {

Graph rounded_up(const Graph& graph, bool inputs_too, const std::string& how,
                 const std::function<Wide(Bytes)>& round) {
  Wide sum = 0;
  const auto rounded_size = [&](Bytes size) {
    const Wide room = round(size);
    sum += room;
    if (sum >= kMaxCount) {
      throw UsageError("with sizes rounded up to " + how + " the graph has 2^62 bytes or more");
    }
    return Bytes(capped(room));
  };
  Graph rounded = graph;
  for (ValueId value : graph.values()) {
    if (inputs_too || !graph.is_graph_input(value)) rounded.bytes[value] = rounded_size(graph.bytes[value]);
  }
  for (OpId op : graph.ops()) {
    for (const auto column : kBytesOfOps) (rounded.*column)[op] = rounded_size((graph.*column)[op]);
  }
  rounded.resident = Bytes();
  for (ValueId input : graph.graph_inputs) rounded.resident += rounded.bytes[input];
  return rounded;
}

namespace {

class FootprintSearch {
 public:
  FootprintSearch(const Request& request, Footprint footprint, Limits& limits)
      : problem_(&request.problem),
        planner_(request.planner),
        options_(&request.effort.options),
        footprint_(std::move(footprint)),
        limits_(&limits) {
    for (const Plan& start : problem_->starts) store_.add(footprint_.rounded, problem_->order, start);
  }

  Answer run() {
    first_ = footprint_.bound.peak > problem_->budget ? refused() : plan(problem_->budget, kFirstShare);
    if (!has_plan(first_)) {
      keep_closest();
    } else if (consider(first_) <= problem_->budget) {
      look_for_faster();
    } else {
      if (real(best_.footprint) < kNear * real(problem_->budget)) refine(kNearShare);
      shrink();
      refine(kLastShare);
    }
    settle();
    return std::move(best_);
  }

 private:
  PlanResult refused() const {
    PlanResult result;
    result.status = Status::kInfeasible;
    result.planner = planner_;
    result.order = problem_->order;
    result.peak_bound = footprint_.bound;
    result.duration_bound = {"base", problem_->graph->base_duration};
    return result;
  }

  /// Plans for these live bytes, with sizes rounded up, from the plans found before.
  PlanResult plan(Bytes live, double share) { return plan(live, planner_, share); }

  PlanResult plan(Bytes live, std::string_view planner, double share) {
    Problem problem = *problem_;
    problem.graph = &footprint_.rounded;
    problem.budget = live;
    problem.starts = {};
    problem.peak_bound = nullptr;
    problem.duration_bound = nullptr;
    Limits inner(*limits_, share);
    PlanResult result = make_plan_from(store_, problem, planner, *options_, inner);
    if (result.known) result.planner = planner_;
    return result;
  }

  /// Measures each plan with the same effort, so that footprints do not depend on earlier work.
  Answer measured(const PlanResult& result) {
    Limits inner(*limits_, kMeasureMost);
    if (work_) inner.set_work(static_cast<std::int64_t>(real(*work_) * kMeasureShare));
    if (seconds_) inner.set_time(*seconds_ * kMeasureShare);
    Answer answer;
    answer.result = result;
    footprint_.measure(answer, inner);
    return answer;
  }

  /// Measures a plan and keeps it if it is the best. Returns its footprint.
  Bytes consider(const PlanResult& result) {
    Answer next = measured(result);
    ++measured_;
    const Bytes footprint = next.footprint;
    const bool fits = footprint <= problem_->budget;
    const bool is_better = !best_.result.plan || (fits != is_found_ ? fits
                                                  : fits ? result.cost.duration < best_.result.cost.duration
                                                         : footprint < best_.footprint);
    if (is_better) best_ = std::move(next);
    is_found_ = is_found_ || fits;
    return footprint;
  }

  /// No plan for the budget: the one that came closest.
  void keep_closest() {
    best_.result = first_;
    if (first_.plan) best_ = measured(first_);
  }

  /// The first plan fits: looks for faster ones.
  void look_for_faster() {
    if (first_.status == Status::kOptimal || limits_->reached()) return;
    const PlanResult next = plan(problem_->budget, kLastShare);
    if (next.cost.duration < best_.result.cost.duration) consider(next);
  }

  /// Live bytes from those requested down to those of the plan found: all give the same plan.
  struct Asked {
    std::int64_t least, most;
  };

  /// Search may improve on a plan that the portfolio found in part of the limits.
  PlanResult next_plan(Bytes live) {
    PlanResult next = plan(live, kNextShare);
    if (planner_ != "auto" || next.status == Status::kOptimal || next.status == Status::kInfeasible)
      return next;
    if (has_plan(next) && is_near_bound(next)) return next;
    PlanResult searched = plan(live, "search", kSearchShare);
    return has_plan(searched) ? searched : next;
  }
  bool is_near_bound(const PlanResult& result) const {
    constexpr double kNearBound = 1.002;
    return real(result.cost.duration) <= kNearBound * real(result.duration_bound.duration);
  }

  /// Plans for fewer live bytes, first for those that the measured footprints suggest.
  void shrink() {
    tried(first_.cost.peak.count(), first_.cost.peak.count(), best_.footprint);
    for (int round = 0; round < kMostRounds && !limits_->reached(); ++round) {
      const std::int64_t live = next_live();
      if (live < 0) return;
      const PlanResult next = next_plan(Bytes(live));
      if (!has_plan(next)) {
        // Too few live bytes, or too little time.
        low_ = std::max(low_, live);
        continue;
      }
      if (is_found_ && next.cost.duration >= best_.result.cost.duration) {
        low_ = std::max(low_, live);
        continue;
      }
      const Bytes footprint = consider(next);
      if (footprint <= problem_->budget) {
        low_ = std::max(low_, live);
        if (next.cost.duration <= first_.cost.duration) return;
      } else {
        tried(next.cost.peak.count(), live, footprint);
      }
    }
  }

  /// Local search by footprints, from the best plan.
  void refine(double share) {
    if (!footprint_.quick || limits_->reached()) return;
    Problem problem = *problem_;
    problem.graph = &footprint_.rounded;
    problem.peak_bound = nullptr;
    problem.duration_bound = nullptr;
    problem.footprint = &footprint_.quick;
    problem.starts = std::span(&*best_.result.plan, 1);
    Limits inner(*limits_, share);
    // Calls the planner directly: the shared entry point compares peaks.
    PlanResult next = find_planner(kLocalSearch).run(problem, *options_, inner);
    if (!next.plan || next.plan == best_.result.plan) return;
    next.cost = simulate(footprint_.rounded, *next.plan);
    next.status = Status::kFeasible;
    next.planner = kLocalSearch;
    if (!is_found_ || next.cost.duration < best_.result.cost.duration) consider(next);
  }

  void tried(std::int64_t least, std::int64_t most, Bytes footprint) {
    asked_.push_back({least, most});
    // Live bytes that would fit with the same loss.
    const Wide fitting = Wide{least} * problem_->budget.count() / footprint.count();
    promising_.push_back(capped(fitting));
  }

  /// The next live bytes to try above `low_`: the most that the measurements suggest, else between `low_` and
  /// the least that did not fit, else within the widest gap, since more live bytes may have a smaller
  /// footprint. -1: all was tried.
  std::int64_t next_live() const {
    const std::int64_t finest = problem_->budget.count() / kFinest;
    const auto is_asked = [&](std::int64_t live) {
      return std::any_of(asked_.begin(), asked_.end(), [&](const Asked& asked) {
        return asked.least - finest <= live && live <= asked.most + finest;
      });
    };
    std::int64_t next = -1;
    for (const std::int64_t live : promising_) {
      if (live > low_ + finest && !is_asked(live)) next = std::max(next, live);
    }
    if (next >= 0) return next;
    std::int64_t nearest = problem_->budget.count();
    for (const Asked& asked : asked_) nearest = std::min(nearest, asked.least);
    if (nearest - low_ > fine()) return low_ + (nearest - low_) / 2;
    return widest_gap();
  }

  std::int64_t fine() const { return std::max(problem_->budget.count() / kFine, std::int64_t{1}); }

  std::int64_t widest_gap() const {
    std::vector<Asked> sorted = asked_;
    std::sort(sorted.begin(), sorted.end(), [](const Asked& a, const Asked& b) { return a.least < b.least; });
    std::int64_t end = low_, widest = fine(), middle = -1;
    for (const Asked& asked : sorted) {
      if (asked.least - end > widest) {
        widest = asked.least - end;
        middle = end + widest / 2;
      }
      end = std::max(end, asked.most);
    }
    return middle;
  }

  /// Converts the answer to the graph itself. Bounds on live bytes hold for the footprint, which is no less.
  void settle() {
    PlanResult& result = best_.result;
    REMAT_ASSERT(!is_found_ || best_.footprint <= problem_->budget, best_.footprint, problem_->budget);
    // Bounds on live bytes hold for footprints only if no footprint is smaller.
    REMAT_ASSERT_HEAVY(!is_found_ || best_.footprint >= simulate(footprint_.rounded, *result.plan).peak,
                       best_.footprint);
    best_.measured = measured_;
    result.duration_bound = first_.duration_bound;
    if (result.plan) result.cost = simulate(*problem_->graph, *result.plan);
    if (is_found_) {
      result.peak_bound = best_peak_bound(*problem_->graph, problem_->order);
      const bool is_fastest = result.cost.duration == result.duration_bound.duration ||
                              (first_.status == Status::kOptimal && result.plan == first_.plan);
      result.status = is_fastest ? Status::kOptimal : Status::kFeasible;
    } else if (result.status != Status::kInfeasible) {
      result.status = Status::kUnknown;
    }
    const bool is_proved = result.status == Status::kOptimal || result.status == Status::kInfeasible;
    result.stopped_by = is_proved ? StoppedBy::kProof : limits_->stopped_by().value_or(StoppedBy::kTarget);
    result.seconds = clock_.seconds();
  }

  static constexpr std::string_view kLocalSearch = "lns";
  static constexpr double kFirstShare = 0.45, kNextShare = 0.15, kSearchShare = 0.2, kLastShare = 0.9;
  static constexpr double kMeasureShare = 0.08, kMeasureMost = 0.9;
  static constexpr double kNear = 1.02, kNearShare = 0.2;  // further off it finds nothing
  static constexpr int kMostRounds = 12;
  static constexpr std::int64_t kFinest = 2000, kFine = 400;

  const Problem* problem_;
  std::string_view planner_;
  const PlanOptions* options_;
  Footprint footprint_;
  Limits* limits_;
  Limits clock_;
  std::optional<std::int64_t> work_ = limits_->work_left();  ///< total
  std::optional<double> seconds_ = limits_->seconds_left();
  PlanStore store_;
  PlanResult first_;  ///< for the budget itself
  Answer best_;
  bool is_found_ = false;  ///< `best_` is within the budget
  int measured_ = 0;
  std::vector<Asked> asked_;             ///< requests that did not fit
  std::vector<std::int64_t> promising_;  ///< for each, live bytes that might fit
  std::int64_t low_ = -1;                ///< the most live bytes that fitted, or for which no plan was found
};

}  // namespace

Answer plan_within(const Request& request, Footprint footprint, Limits& limits) {
  return FootprintSearch(request, std::move(footprint), limits).run();
}

}  // namespace remat
