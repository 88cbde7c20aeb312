#include "planners/auto/auto.h"

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "planning/options.h"

namespace remat::automatic {
namespace {

// Shares of the time and work that are left when their turn comes.
constexpr double kRetentionShare = 0.2;
constexpr double kChainShare = 0.2;
constexpr double kFirstChainShare = 0.5;
constexpr double kWideGap = 0.01;
constexpr double kVeryWideGap = 0.3;
constexpr double kGreedyShare = 0.05;
constexpr double kTreeShare = 0.6;  // large graphs: most of it erases what its long plans run twice
constexpr double kEvictShare = 0.25;
constexpr double kSearchBeforeProof = 0.5;       // of a short limit
constexpr double kLongSearchBeforeProof = 0.06;  // small graphs: the search is done long before
constexpr double kLongSeconds = 4;
constexpr double kProofShare = 0.85;
constexpr double kSearchBeforeBound = 0.92;
// Above, the stage model as an integer program no longer closes in seconds (docs/bounds.md).
constexpr std::size_t kProofOps = 220;
// Above, making those plans again takes a good part of a second.
constexpr std::size_t kLargeOps = 4000;
constexpr double kSearchSecondsPerOp = 8e-6;
// Below, a relaxation of the stage model costs more than its bound is worth.
constexpr double kBoundSeconds = 4;

using Settings = std::map<std::string, std::string>;

/// The best result so far, and every plan as a start for what comes after.
class Schedule {
 public:
  Schedule(const Problem& problem, const PlanOptions& options, Limits& limits)
      : problem_(problem),
        options_(options),
        limits_(limits),
        starts_(problem.starts.begin(), problem.starts.end()) {}

  PlanResult run() {
    plan_with("keep_all", 1);
    if (problem_.objective == Objective::kTime) {
      plan_with("retention", kRetentionShare);
      // Chains at low budgets; the search from these plans costs more the larger the graph is.
      if (!has_plan(best_)) {
        plan_with("rotor", kFirstChainShare, {{"first", "on"}});
      } else if (gap(best_) > kWideGap) {
        plan_with("rotor", kChainShare);
      }
      if (!has_plan(best_)) plan_with("greedy", kGreedyShare);
      if (!done() && (!has_plan(best_) || gap(best_) > kVeryWideGap)) plan_with("tw_remat", kTreeShare);
      // Where a plan is at hand the search improves it faster than evict does.
      if (!done() && !has_plan(best_)) plan_with("evict", kEvictShare);
      if (provable()) {
        const bool long_limit = limits_.seconds_left().value_or(kLongSeconds) >= kLongSeconds;
        search(long_limit ? kLongSearchBeforeProof : kSearchBeforeProof);
        prove(kProofShare);
      } else if (problem_.order == OrderMode::kFixed && limits_.seconds_left().value_or(0) >= kBoundSeconds) {
        search(kSearchBeforeBound);
        bound();
      }
    }
    search(1);
    if (const auto reason = limits_.stopped_by(); reason && best_.stopped_by != StoppedBy::kProof) {
      best_.stopped_by = *reason;
    }
    best_.counters.insert(best_.counters.begin(), called_.begin(), called_.end());
    return std::move(best_);
  }

 private:
  bool done() {
    return best_.status == Status::kOptimal || best_.status == Status::kInfeasible ||
           (best_.plan && limits_.reached());
  }

  bool provable() const {
    return problem_.order == OrderMode::kFixed && problem_.graph->num_ops() <= kProofOps;
  }

  /// On large graphs its state alone takes a good part of a second to make.
  void search(double share) {
    const double to_begin = kSearchSecondsPerOp * static_cast<double>(problem_.graph->num_ops());
    const bool is_large = problem_.graph->num_ops() >= kLargeOps;
    if (is_large && has_plan(best_) && limits_.seconds_left().value_or(to_begin) < to_begin) return;
    plan_with("search", share, search_options());
  }

  /// On large graphs the plans that search would make to begin from are those that are already here.
  Settings search_options() const {
    if (problem_.graph->num_ops() < kLargeOps || !has_plan(best_)) return {};
    return {{"retention", "off"}, {"constructive", "off"}};
  }

  void plan_with(std::string_view name, double share, const Settings& set = {}) {
    if (done()) return;
    Limits part(limits_, share);
    Problem problem = problem_;
    problem.starts = starts_;
    if (find_planner(name).supports(problem)) return;
    // A second call of the same planner must not walk the same way.
    PlanResult result =
        make_plan(problem, name, PlanOptions{options_.seed + calls_++, options_.threads, set}, part);
    note(name, part);
    if (result.planner == "known" && best_.plan) result.planner = best_.planner;
    if (best_.plan) carry_over(result);
    if (!best_.plan || better(problem, result, best_) || result.status == Status::kInfeasible) {
      best_ = std::move(result);
      report();
    } else {
      best_.counters = std::move(result.counters);
    }
    if (best_.plan) starts_.assign(1, *best_.plan);
  }

  /// What was proved before stays proved.
  void carry_over(PlanResult& result) const {
    if (best_.duration_bound.duration > result.duration_bound.duration)
      result.duration_bound = best_.duration_bound;
  }

  void prove(double share) {
    if (done() || !has_plan(best_)) return;
    Limits part(limits_, share);
    Proof proof = prove_optimal(*problem_.graph, problem_.budget, problem_.order, *best_.plan, part);
    note("prove_optimal", part);
    if (proof.plan) {
      best_.plan = std::move(proof.plan);
      best_.cost = simulate(*problem_.graph, *best_.plan);
      best_.planner = "stage_milp";
      starts_.assign(1, *best_.plan);
    }
    take_bound(std::move(proof.bound));
    if (proof.optimal) {
      best_.status = Status::kOptimal;
      best_.stopped_by = StoppedBy::kProof;
    }
  }

  void bound() {
    if (done() || !has_plan(best_)) return;
    Limits part(limits_, 1);
    take_bound(
        best_duration_bound(*problem_.graph, problem_.budget, problem_.order, best_.cost.duration, part));
    note("best_duration_bound", part);
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
  Limits& limits_;
  std::vector<Plan> starts_;
  std::uint64_t calls_ = 0;
  Counters called_;  ///< what was called, in sequence, and the work that it took
  PlanResult best_;
};

PlanResult run(const Problem& problem, const PlanOptions& options, Limits& limits) {
  OptionReader(options, "auto").finish();
  return Schedule(problem, options, limits).run();
}

}  // namespace

PlannerInfo info() {
  return {"auto",
          "cheap planners first, then search from their plans, and proofs where they are within reach",
          "a valid plan; optimal or infeasible only where proved",
          "Remat",
          [](const Problem&) -> std::optional<std::string> { return std::nullopt; },
          run};
}

}  // namespace remat::automatic
