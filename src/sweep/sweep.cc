#include "remat/sweep.h"

#include <algorithm>
#include <functional>

#include "base/numbers.h"
#include "remat/bounds.h"
#include "remat/check.h"
#include "remat/error.h"
#include "remat/keep_all.h"

namespace remat {
namespace {

class Sweeper {
 public:
  Sweeper(const Graph& graph, const SweepOptions& options, Limits& limits, PlanStore& store)
      : graph_(graph), options_(options), limits_(limits), store_(store) {}

  SweepResult run() {
    result_.keep_all_peak = keep_all_peak(graph_);
    result_.peak_bound = options_.host ? host_peak_bound(graph_) : best_peak_bound(graph_, options_.order);
    learn(keep_all_plan(graph_));
    if (!options_.host) improve_smallest_peak();
    lay_out_budgets();
    // From large to small budgets, so that each start nearly fits; the second pass starts from the first
    // pass's plans on both sides.
    const int passes = options_.host ? 1 : 2;
    for (int pass = 0; pass < passes; ++pass) {
      for (std::size_t i = 0; i < result_.points.size() && !limits_.reached(); ++i) {
        const auto left = at(passes - pass) * result_.points.size() - i;
        improve(result_.points[i], 1.0 / real(left));
      }
    }
    collect();
    mark_knee();
    result_.stopped_by = limits_.stopped_by();
    result_.seconds = limits_.seconds();
    return std::move(result_);
  }

 private:
  PlanResult ask(Problem problem, Limits& share) {
    problem.peak_bound = &result_.peak_bound;
    if (!options_.host) return make_plan_from(store_, problem, options_.planner, options_.plan, share);
    problem.host = options_.host;
    PlanResult result = make_plan(problem, options_.planner, options_.plan, share);
    if (result.plan) learn(*result.plan);
    return result;
  }

  void learn(const Plan& plan) {
    if (!options_.host) return store_.add(graph_, options_.order, plan);
    found_.push_back({simulate(graph_, plan, &*options_.host), plan});
  }

  /// By falling peak and rising duration, or by rising duration alone.
  std::vector<PlanStore::Entry> known() {
    if (!options_.host) return store_.all(graph_, options_.order);
    std::ranges::stable_sort(found_, {}, [](const PlanStore::Entry& one) { return one.cost.duration; });
    return found_;
  }

  void improve_smallest_peak() {
    Limits share(limits_, 0.15);
    ask({&graph_, kNoBudget, options_.order, Objective::kPeak}, share);
  }

  void lay_out_budgets() {
    const Bytes low = options_.host ? result_.peak_bound.peak : known().back().cost.peak;
    const Bytes high = result_.keep_all_peak;
    const std::int64_t last = std::max(1, options_.points - 1);
    for (std::int64_t i = 0; i <= last; ++i) {
      // Divided first: the product of a size in bytes and a count of points may leave 64 bits.
      const std::int64_t span = high.count() - low.count();
      const std::int64_t down = span / last * i + span % last * i / last;
      SweepPoint point;
      point.budget = high - Bytes(down);
      result_.points.push_back(point);
    }
    add_budgets_around(low, high);
    std::ranges::sort(result_.points, std::ranges::greater(), &SweepPoint::budget);
    const auto same = std::ranges::unique(result_.points, {}, &SweepPoint::budget);
    result_.points.erase(same.begin(), same.end());
  }

  /// Apart by a round amount: 1 GiB, or the largest power of two that is at most a quarter of the range.
  void add_budgets_around(Bytes low, Bytes high) {
    std::int64_t apart = std::int64_t{1} << 30;
    while (apart > 1 && apart > (high - low).count() / 4) apart /= 2;
    result_.apart = Bytes(apart);
    for (const Bytes budget : options_.around) {
      for (const std::int64_t away : {-apart, std::int64_t{0}, apart}) {
        SweepPoint point;
        if (budget > high || budget.count() + away < low.count()) continue;
        point.budget = std::min(high, budget + Bytes(away));
        result_.points.push_back(point);
      }
    }
  }

  void improve(SweepPoint& point, double part) {
    if (point.result.status == Status::kOptimal) return;
    Limits share(limits_, part);
    PlanResult answer = ask({&graph_, point.budget, options_.order, Objective::kTime}, share);
    if (answer.known) answer.planner = point.result.planner;
    if (answer.duration_bound.duration < point.result.duration_bound.duration) {
      answer.duration_bound = point.result.duration_bound;
    }
    point.result = std::move(answer);
  }

  /// Each point gets the fastest plan of the whole run that fits it.
  void collect() {
    const std::vector<PlanStore::Entry> known = this->known();
    result_.smallest_peak = result_.keep_all_peak;
    for (const PlanStore::Entry& entry : known) {
      result_.smallest_peak = std::min(result_.smallest_peak, entry.cost.peak);
    }
    for (SweepPoint& point : result_.points) {
      PlanResult& result = point.result;
      const auto fastest = std::find_if(known.begin(), known.end(), [&](const PlanStore::Entry& entry) {
        return within_budget({.graph = &graph_, .budget = point.budget, .host = options_.host}, entry.cost);
      });
      result.plan.reset();
      if (fastest == known.end()) continue;
      result.plan = fastest->plan;
      result.cost = fastest->cost;
      result.order = options_.order;
      if (result.duration_bound.duration < graph_.base_duration)
        result.duration_bound = {"base", graph_.base_duration};
      if (result.planner.empty()) mark_known(result);
      const bool proved = result.cost.duration == result.duration_bound.duration;
      if (result.status != Status::kOptimal) result.status = proved ? Status::kOptimal : Status::kFeasible;
    }
    std::erase_if(result_.points, [](const SweepPoint& point) { return !point.result.plan; });
    REMAT_ASSERT_HEAVY(is_a_curve(), result_.points.size());
  }

  /// Every plan fits its point, is no faster than its bound, and no slower than that of a smaller budget.
  bool is_a_curve() const {
    const Host* host = options_.host ? &*options_.host : nullptr;
    Duration before;
    for (const SweepPoint& point : result_.points) {
      const PlanResult& result = point.result;
      if (validate(graph_, *result.plan, options_.order, point.budget, host)) return false;
      if (result.cost.duration < std::max(before, result.duration_bound.duration)) return false;
      before = result.cost.duration;
    }
    return true;
  }

  void mark_knee() {
    const SweepPoint &first = result_.points.front(), &last = result_.points.back();
    const double memory = real((first.budget - last.budget).count());
    const auto overhead_at = [&](const SweepPoint& point) {
      return overhead(graph_, point.result.cost.duration);
    };
    const double height = overhead_at(last) - overhead_at(first);
    if (memory <= 0 || height <= 0) return;
    SweepPoint* knee = nullptr;
    double farthest = 0;
    for (SweepPoint& point : result_.points) {
      const double along = real((first.budget - point.budget).count()) / memory;
      const double below = along - (overhead_at(point) - overhead_at(first)) / height;
      if (below > farthest) {
        farthest = below;
        knee = &point;
      }
    }
    if (knee) knee->knee = true;
  }

  const Graph& graph_;
  const SweepOptions& options_;
  Limits& limits_;
  PlanStore& store_;
  std::vector<PlanStore::Entry> found_;  ///< with a host
  SweepResult result_;
};

}  // namespace

SweepResult sweep(const Graph& graph, const SweepOptions& options, Limits& limits, PlanStore& store) {
  if (options.points < kLeastPoints || options.points > kMostPoints) {
    throw UsageError("a sweep has " + std::to_string(kLeastPoints) + " to " + std::to_string(kMostPoints) +
                     " points, not " + std::to_string(options.points));
  }
  return Sweeper(graph, options, limits, store).run();
}

}  // namespace remat
