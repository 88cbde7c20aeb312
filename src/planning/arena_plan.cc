// Plan and layout together: the layout says by how much a plan's live bytes must shrink.
#include <algorithm>

#include "remat/arena.h"
#include "remat/bounds.h"
#include "remat/error.h"
#include "remat/store.h"

namespace remat {
namespace {

/// What an arena holds of a size. Sums of the graph stay below 2^62 or the graph is refused.
class RoundUp {
 public:
  explicit RoundUp(std::int64_t alignment) : alignment_(alignment) {
    if (alignment < 1 || alignment >= kMaxCount) {
      throw UsageError("alignment " + std::to_string(alignment) + " is outside [1, 2^62)");
    }
  }
  Bytes operator()(Bytes size) {
    const Wide room = (Wide{size.count()} + alignment_ - 1) / alignment_ * alignment_;
    sum_ += room;
    if (sum_ >= kMaxCount) {
      throw UsageError("with sizes rounded up to the alignment " + std::to_string(alignment_) +
                       " the graph has 2^62 bytes or more");
    }
    return Bytes(capped(room));
  }

 private:
  std::int64_t alignment_;
  Wide sum_ = 0;
};

/// The graph as an arena sees it. Graph inputs are not laid out.
Graph rounded_up(const Graph& graph, std::int64_t alignment) {
  Graph rounded = graph;
  RoundUp round(alignment);
  for (ValueId value : graph.values()) {
    if (!graph.is_graph_input(value)) rounded.bytes[value] = round(graph.bytes[value]);
  }
  for (OpId op : graph.ops()) {
    rounded.workspace[op] = round(graph.workspace[op]);
    rounded.generator_state[op] = round(graph.generator_state[op]);
  }
  return rounded;
}

class ArenaPlanner {
 public:
  ArenaPlanner(const Problem& problem, std::string_view planner, const PlanOptions& options,
               std::int64_t alignment, Limits& limits)
      : problem_(&problem),
        planner_(planner),
        options_(&options),
        alignment_(alignment),
        limits_(&limits),
        rounded_(rounded_up(*problem.graph, alignment)) {
    for (const Plan& start : problem.starts) store_.add(rounded_, problem.order, start);
  }

  ArenaPlan run() {
    first_ = plan(problem_->budget, kFirstShare);
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

  /// Lays out a plan and keeps it where it is better than the best. Returns its arena.
  Bytes consider(const PlanResult& result) {
    ArenaPlan next = laid_out(result, kLayoutShare);
    ++plans_;
    const Bytes arena = next.arena();
    const bool fits = arena <= problem_->budget;
    const bool is_better = !best_.result.plan || (fits != is_found_ ? fits
                                                  : fits ? result.cost.duration < best_.result.cost.duration
                                                         : arena < best_.arena());
    if (is_better) best_ = std::move(next);
    is_found_ = is_found_ || fits;
    return arena;
  }

  ArenaPlan laid_out(const PlanResult& result, double share) {
    ArenaPlan plan{result, plan_buffers(*problem_->graph, *result.plan, alignment_), {}, 0};
    plan.buffers.problem.capacity = problem_->budget - plan.buffers.resident;
    Limits inner(*limits_, share);
    LayoutOptions options;
    options.seed = options_->seed;
    plan.layout = make_layout(plan.buffers.problem, options, inner);
    return plan;
  }

  /// No plan for the budget: the one that came closest.
  void keep_closest() {
    best_.result = first_;
    if (first_.plan) best_ = laid_out(first_, kLayoutShare);
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
    std::int64_t step = (best_.arena() - problem_->budget).count();
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
      const Bytes arena = consider(next);
      if (arena <= problem_->budget) {
        low = live;
        if (next.cost.duration <= first_.cost.duration) return;
      } else {
        high = std::min(high, next.cost.peak.count());
        step = std::max(step, (arena - problem_->budget).count());
      }
    }
  }

  /// The answer in terms of the graph itself. What holds for live bytes holds for the arena, which is not
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
  }

  static constexpr double kFirstShare = 0.5, kNextShare = 0.4, kLastShare = 0.9, kLayoutShare = 0.3;
  static constexpr int kMostRounds = 12;
  static constexpr std::int64_t kFinest = 2000;

  const Problem* problem_;
  std::string_view planner_;
  const PlanOptions* options_;
  std::int64_t alignment_;
  Limits* limits_;
  Graph rounded_;
  PlanStore store_;
  PlanResult first_;  ///< for the budget itself
  ArenaPlan best_;
  bool is_found_ = false;  ///< `best_` is within the budget
  int plans_ = 0;
};

}  // namespace

ArenaPlan make_arena_plan(const Problem& problem, std::string_view planner, const PlanOptions& options,
                          std::int64_t alignment, Limits& limits) {
  if (problem.objective != Objective::kTime) {
    throw UsageError("a budget on the arena goes with objective time only");
  }
  const Limits clock;
  ArenaPlan plan = ArenaPlanner(problem, planner, options, alignment, limits).run();
  plan.result.seconds = clock.seconds();
  return plan;
}

LayoutResult glance_layout(const LayoutProblem& problem) {
  constexpr std::int64_t kWork = 50'000;
  Limits limits;
  limits.set_work(kWork);
  return make_layout(problem, {}, limits);
}

}  // namespace remat
