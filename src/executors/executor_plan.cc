// A plan of an executor: a quick search, then an integer program whose answers are simulated.
#include "executors/executor_plan.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <optional>

#include "base/numbers.h"
#include "executors/model.h"
#include "executors/search.h"
#include "executors/shape.h"
#include "lp/highs.h"
#include "remat/error.h"
#include "remat/executor.h"
#include "remat/keep_all.h"

namespace remat {

std::string_view to_string(Executor executor) {
  switch (executor) {
    case Executor::kRemat:
      return "remat";
    case Executor::kPartitioner:
      return "partitioner";
    case Executor::kCheckpoint:
      return "checkpoint";
  }
  return "";
}

Executor parse_executor(std::string_view text) {
  for (Executor executor : {Executor::kRemat, Executor::kPartitioner, Executor::kCheckpoint}) {
    if (text == to_string(executor)) return executor;
  }
  throw UsageError("executor must be 'checkpoint', 'partitioner' or 'remat', not '" + std::string(text) +
                   "'");
}

namespace executors {
namespace {

/// Most steps times values of an integer program.
constexpr std::int64_t kMostCells = 6'000'000;
constexpr int kMostRounds = 40;

/// What was proved, and how.
struct Proved {
  Duration least;
  bool closed = false;  ///< nothing is faster than the plan found, or nothing is within the budget
  std::int64_t nodes = 0, rounds = 0;
};

/// Durations are integers, so bounds are rounded up.
Duration raised(double bound, double unit) {
  return Duration(static_cast<std::int64_t>(std::ceil(std::max(0.0, bound) * unit - 1e-6)));
}

/// Solves, simulates the choice, and forbids it if it is over the budget.
Proved solve(const Shape& shape, Bytes budget, const PlanOptions& options, Search& search, Limits& limits) {
  Proved proved;
  proved.least = shape.graph->base_duration;
  if (!Model::fits(shape, kMostCells)) return proved;
  Model model(shape, budget);
  while (proved.rounds < kMostRounds && !limits.reached()) {
    ++proved.rounds;
    lp::Settings settings;
    settings.seed = narrow<std::int64_t>(options.seed & 0x7fffffff);
    settings.threads = options.threads;
    if (search.best()) settings.start = model.start_of(search.best()->choice.again);
    const lp::Solution solution = lp::solve(model.program(), settings, limits);
    proved.nodes += solution.nodes;
    if (solution.outcome == lp::Outcome::kInfeasible) {
      // All choices of the program were simulated and forbidden, or there were none.
      proved.closed = true;
      return proved;
    }
    proved.least = std::max(proved.least, shape.graph->base_duration + raised(solution.bound, model.unit()));
    if (!solution.x) return proved;
    const Again again = model.again_of(*solution.x);
    const auto cost = search.evaluate({again});
    const bool fits = cost && cost->peak <= budget;
    if (solution.outcome != lp::Outcome::kOptimal) return proved;
    if (fits) {
      proved.closed = true;
      return proved;
    }
    model.forbid(again);
  }
  return proved;
}

/// Tries our budget first, then others by bisection between the largest whose plan is within ours and the
/// smallest whose plan is not. `is_within` returns whether a plan is within our budget; nothing ends the
/// search.
void halve_budgets(const Problem& problem, int most, Limits& limits,
                   const std::function<std::optional<bool>(Bytes)>& is_within) {
  Bytes fits = problem.graph->resident, over = keep_all_peak(*problem.graph);
  Bytes budget = problem.budget;
  for (int i = 0; i < most && fits < over && !limits.reached(); ++i) {
    const auto keeps = is_within(budget);
    if (!keeps) return;
    (*keeps ? fits : over) = budget;
    budget = fits + Bytes((over - fits).count() / 2);
  }
}

/// Recomputing layer by layer is also a choice for partitioners, one that minimum cuts do not find: saving
/// the input of a layer gains no time if all before it is recomputed anyway. The same set has another peak
/// there, so budgets around ours are tried.
void try_checkpoints(const Problem& problem, Search& search, Limits& limits) {
  constexpr int kMostBudgets = 12;
  const auto shape = shape_if_any(*problem.graph, Executor::kCheckpoint);
  if (!shape) return;
  halve_budgets(problem, kMostBudgets, limits, [&](Bytes budget) -> std::optional<bool> {
    Search checkpoints(*shape, budget, limits);
    checkpoints.start();
    checkpoints.improve();
    const auto& found = checkpoints.best() ? checkpoints.best() : checkpoints.lowest();
    if (!found) return std::nullopt;
    const auto cost = search.evaluate({found->choice.again});
    const bool keeps = cost && cost->peak <= problem.budget;
    if (!checkpoints.best() && !keeps) return std::nullopt;
    return keeps;
  });
}

/// Tries the set of ops that an unrestricted plan recomputes (there in another order, perhaps repeatedly): is
/// it within our budget here? Nothing if there is no such plan.
std::optional<bool> try_plan(const Problem& problem, Bytes budget, const PlanOptions& options, Search& search,
                             Limits& limits) {
  const Graph& graph = *problem.graph;
  Problem other = problem;
  other.budget = budget;
  other.duration_bound = nullptr;
  other.host.reset();
  const PlanResult found = make_plan(other, "retention", options, limits);
  if (!found.plan) return std::nullopt;
  IndexVector<OpId, int> runs(graph.num_ops(), 0);
  for (OpId step : found.plan->steps) ++runs[step];
  Again again(graph.num_ops(), false);
  for (OpId op : graph.ops()) again[op] = runs[op] > 1;
  const auto cost = search.evaluate({again});
  return cost && cost->peak <= problem.budget;
}

/// Tries such plans for smaller budgets if the set needs more memory here. Its memory is not monotone in the
/// budget, so if bisection finds nothing, budgets over the whole range are tried.
void try_plans(const Problem& problem, const PlanOptions& options, Search& search, Limits& limits) {
  constexpr int kMostBudgets = 10, kShares = 16;
  bool keeps_ours = false;
  const auto is_within = [&](Bytes budget) {
    Limits share(limits, 1.0 / kMostBudgets);
    return try_plan(problem, budget, options, search, share);
  };
  halve_budgets(problem, kMostBudgets, limits, [&](Bytes budget) -> std::optional<bool> {
    const auto keeps = is_within(budget);
    keeps_ours = keeps == true && budget == problem.budget;
    return keeps_ours ? std::nullopt : keeps;
  });
  if (keeps_ours) return;
  for (int i = kShares - 1; i > kShares / 2 && !search.best() && !limits.reached(); --i) {
    if (!is_within(Bytes(problem.budget.count() / kShares * i))) return;
  }
}

/// Quick searches, without an integer program.
void look(const Shape& shape, const Problem& problem, const PlanOptions& options, Limits& limits,
          Search& search) {
  search.start();
  if (shape.executor == Executor::kPartitioner && !shape.host &&
      !(search.best() && search.best()->cost.duration == problem.graph->base_duration)) {
    try_checkpoints(problem, search, limits);
    try_plans(problem, options, search, limits);
  }
  search.lower();
  search.improve();
}

/// Starts the search of a shape with a host from the best set without one. No integer program looks for it:
/// its first round may take longer than a short search has, and then nothing looks for copies.
void start_without_host(const Problem& problem, const PlanOptions& options, Limits& limits, Search& search) {
  constexpr double kShare = 0.5;
  Problem other = problem;
  other.host.reset();
  const Shape shape = shape_of(*problem.graph, Executor::kPartitioner);
  Limits share(limits, kShare);
  Search first(shape, problem.budget, share);
  look(shape, other, options, share, first);
  const auto& found = first.best() ? first.best() : first.lowest();
  if (found) search.evaluate({found->choice.again});
}

PlanResult run(const Shape& shape, const Problem& problem, const PlanOptions& options, Limits& limits,
               Search& search) {
  PlanResult result;
  if (shape.host) start_without_host(problem, options, limits, search);
  look(shape, problem, options, limits, search);
  const bool is_base = search.best() && search.best()->cost.duration == problem.graph->base_duration;
  Proved proved;
  if (!is_base && !shape.host) proved = solve(shape, problem.budget, options, search, limits);
  if (search.best()) {
    result.plan = search.best()->plan;
    if (proved.closed) result.status = Status::kOptimal;
    const Duration least = proved.closed ? search.best()->cost.duration : proved.least;
    result.duration_bound = {"executor", std::min(least, search.best()->cost.duration)};
  } else {
    if (search.lowest()) result.plan = search.lowest()->plan;
    if (proved.closed) {
      result.status = Status::kInfeasible;
      result.stopped_by = StoppedBy::kProof;
    }
  }
  result.counters = {{"sets", search.looked_at()}, {"rounds", proved.rounds}, {"nodes", proved.nodes}};
  return result;
}

/// Fills in the recomputed ops and the saved values of a plan.
void describe(const Shape& shape, const Plan& plan, ExecutorPlan& answer) {
  const Graph& graph = *shape.graph;
  Again again(graph.num_ops(), false);
  for (StepId step(shape.first_backward.index()); step < StepId(std::ssize(plan.steps.raw())); ++step) {
    if (shape.is_forward(plan.steps[step])) again[plan.steps[step]] = true;
  }
  for (OpId op : graph.ops()) {
    if (again[op]) answer.again.push_back(op);
  }
  for (CheckpointRegion& region : answer.regions)
    std::ranges::copy_if(region.ops, std::back_inserter(region.again), [&](OpId op) { return again[op]; });
  const StepId turn(shape.first_backward.index());
  for (const InstanceLife& life : instance_lives(graph, plan)) {
    if (life.first >= turn || life.end <= turn) continue;
    answer.saved.push_back(life.value);
    answer.saved_bytes += graph.bytes[life.value];
  }
  std::ranges::sort(answer.saved);
}

}  // namespace

ExecutorPlan best_plan(const Problem& asked, Executor executor, const PlanOptions& options, Limits& limits) {
  ExecutorPlan answer;
  answer.executor = executor;
  Problem problem = asked;
  problem.starts = {};
  const Shape shape = shape_of(*problem.graph, executor, problem.host);
  answer.regions = shape.regions;
  Search search(shape, problem.budget, limits);
  answer.result = make_plan_with(
      problem, to_string(executor),
      [&](const Problem& bounded, Limits& inner) { return run(shape, bounded, options, inner, search); },
      limits);
  if (!search.lowest()) search.start();  // infeasible for any plan
  answer.least_peak = search.lowest() ? search.lowest()->cost.peak : keep_all_peak(*problem.graph);
  if (answer.result.plan) describe(shape, *answer.result.plan, answer);
  return answer;
}

}  // namespace executors
}  // namespace remat
