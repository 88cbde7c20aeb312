
#include "bounds/cheap.h"
#include "exact/stage_solve.h"
#include "lp/highs.h"
#include "remat/bounds.h"
#include "remat/check.h"

namespace remat {
namespace {

/// Columns above which the integer program is not worth starting.
constexpr std::int64_t kMostProofColumns = 400'000;

}  // namespace

Proof prove_optimal(const Graph& graph, Bytes budget, OrderMode order, const Plan& plan, Limits& limits) {
  Proof proof;
  const Duration known = simulate(graph, plan).duration;
  proof.bound = cheap_duration_bound(graph, budget, order, limits);
  proof.optimal = proof.bound.duration >= known;
  if (proof.optimal || limits.reached() || lp::unavailable()) return proof;
  if (order == OrderMode::kFree || full_columns(graph) > kMostProofColumns) {
    proof.bound = best_duration_bound(graph, budget, order, known, limits);
    proof.optimal = proof.bound.duration == known;
    return proof;
  }
  // Anything faster costs at least one time unit less.
  const StageSpec spec{.budget = budget, .first = {}, .cutoff = known - Duration(1)};
  const StageModel stages(graph, spec);
  const StageOutcome outcome = solve_stages(graph, stages, spec, {}, limits);
  if (outcome.bound >= proof.bound.duration) proof.bound = {"stage_milp", outcome.bound};
  if (outcome.x) {
    Duration best = known;
    auto found = plan_within(graph, stages, budget, *outcome.x);
    if (found && simulate(graph, *found).duration < known) {
      best = simulate(graph, *found).duration;
      proof.plan = std::move(found);
    }
    proof.optimal = best <= proof.bound.duration;
  } else {
    proof.optimal = proof.bound.duration >= known;
  }
  REMAT_ASSERT_HEAVY(!proof.plan || !validate(graph, *proof.plan, order, budget), budget);
  // A plan within the budget refutes every bound above it.
  REMAT_ASSERT_HEAVY(validate(graph, plan, order, budget) || proof.bound.duration <= known,
                     proof.bound.argument, proof.bound.duration, known);
  return proof;
}

}  // namespace remat
