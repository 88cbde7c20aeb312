// Plans whose footprint is within a budget: an arena with its gaps, an allocator's segments. The footprint
// says by how much a plan's live bytes must shrink.
#pragma once

#include <algorithm>
#include <functional>
#include <string>
#include <utility>

#include "remat/bounds.h"
#include "remat/error.h"
#include "remat/planner.h"
#include "remat/store.h"

namespace remat {

/// The graph with sizes as the footprint holds them. Throws UsageError where the sum of those that `round`
/// was asked for is not below 2^62; `how` says how they were rounded.
inline Graph rounded_up(const Graph& graph, bool inputs_too, const std::string& how,
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
    rounded.workspace[op] = rounded_size(graph.workspace[op]);
    rounded.generator_state[op] = rounded_size(graph.generator_state[op]);
  }
  rounded.resident = Bytes();
  for (ValueId input : graph.graph_inputs) rounded.resident += rounded.bytes[input];
  return rounded;
}

/// `Found` has the `result` of a plan, its `footprint()`, and how many `plans` were measured.
template <class Found>
class FootprintSearch {
 public:
  /// No footprint is below the live bytes of `rounded`, and a plan's copy of `Found` is what `measure` makes
  /// of it within limits of its own.
  FootprintSearch(const Problem& problem, std::string_view planner, const PlanOptions& options, Graph rounded,
                  std::function<Found(const PlanResult&, Limits&)> measure, Limits& limits)
      : problem_(&problem),
        planner_(planner),
        options_(&options),
        rounded_(std::move(rounded)),
        measure_(std::move(measure)),
        limits_(&limits) {
    for (const Plan& start : problem.starts) store_.add(rounded_, problem.order, start);
  }

  /// What no footprint is below, beside the bounds of live bytes; asked before anything is planned.
  void set_bound(const PeakBound& bound) { bound_ = bound; }

  Found run() {
    first_ = bound_.peak > problem_->budget ? refused() : plan(problem_->budget, kFirstShare);
    if (!has_plan(first_)) {
      keep_closest();
    } else if (consider(first_) <= problem_->budget) {
      go_on();
    } else {
      shrink();
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
    result.peak_bound = bound_;
    result.duration_bound = {"base", problem_->graph->base_duration};
    return result;
  }

  /// Plans for these live bytes, sizes rounded up. It goes on from what was found before.
  PlanResult plan(Bytes live, double share) {
    Problem problem = *problem_;
    problem.graph = &rounded_;
    problem.budget = live;
    problem.starts = {};
    problem.peak_bound = nullptr;
    problem.duration_bound = nullptr;
    Limits inner(*limits_, share);
    PlanResult result = make_plan_from(store_, problem, planner_, *options_, inner);
    if (result.known) result.planner = planner_;
    return result;
  }

  Found measured(const PlanResult& result) {
    Limits inner(*limits_, kMeasureShare);
    return measure_(result, inner);
  }

  /// Measures a plan and keeps it where it is better than the best. Returns its footprint.
  Bytes consider(const PlanResult& result) {
    Found next = measured(result);
    ++plans_;
    const Bytes footprint = next.footprint();
    const bool fits = footprint <= problem_->budget;
    const bool is_better = !best_.result.plan || (fits != is_found_ ? fits
                                                  : fits ? result.cost.duration < best_.result.cost.duration
                                                         : footprint < best_.footprint());
    if (is_better) best_ = std::move(next);
    is_found_ = is_found_ || fits;
    return footprint;
  }

  /// No plan for the budget: the one that came closest.
  void keep_closest() {
    best_.result = first_;
    if (first_.plan) best_ = measured(first_);
  }

  /// The first plan fits: a faster one may, too.
  void go_on() {
    if (first_.status == Status::kOptimal || limits_->reached()) return;
    const PlanResult next = plan(problem_->budget, kLastShare);
    if (next.cost.duration < best_.result.cost.duration) consider(next);
  }

  /// Fewer live bytes until a plan fits, then as many as one fits with.
  void shrink() {
    std::int64_t high = first_.cost.peak.count(), low = -1;  // live bytes that did not fit, that did
    std::int64_t step = (best_.footprint() - problem_->budget).count();
    for (int round = 0; round < kMostRounds && !limits_->reached(); ++round) {
      const std::int64_t live = low < 0 ? high - step : low + (high - low) / 2;
      if (step == 0 || (low >= 0 && high - low <= problem_->budget.count() / kFinest)) return;
      const PlanResult next = live < 0 ? PlanResult() : plan(Bytes(live), kNextShare);
      if (!has_plan(next)) {
        // Too few live bytes, or too little time: nearer to what did not fit.
        if (low >= 0) return;
        step /= 2;
        continue;
      }
      const Bytes footprint = consider(next);
      if (footprint <= problem_->budget) {
        low = live;
        if (next.cost.duration <= first_.cost.duration) return;
      } else {
        high = std::min(high, next.cost.peak.count());
        step = std::max(step, (footprint - problem_->budget).count());
      }
    }
  }

  /// The answer in terms of the graph itself. What holds for live bytes holds for the footprint, which is not
  /// smaller.
  void settle() {
    PlanResult& result = best_.result;
    best_.plans = plans_;
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

  static constexpr double kFirstShare = 0.5, kNextShare = 0.4, kLastShare = 0.9, kMeasureShare = 0.3;
  static constexpr int kMostRounds = 12;
  static constexpr std::int64_t kFinest = 2000;

  const Problem* problem_;
  std::string_view planner_;
  const PlanOptions* options_;
  Graph rounded_;
  std::function<Found(const PlanResult&, Limits&)> measure_;
  Limits* limits_;
  Limits clock_;
  PeakBound bound_;
  PlanStore store_;
  PlanResult first_;  ///< for the budget itself
  Found best_;
  bool is_found_ = false;  ///< `best_` is within the budget
  int plans_ = 0;
};

}  // namespace remat
