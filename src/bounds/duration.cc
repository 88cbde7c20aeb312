#include <algorithm>

#include "bounds/cut.h"
#include "bounds/stage_solve.h"
#include "remat/bounds.h"

namespace remat {

DurationBound cheap_duration_bound(const Graph& graph, Bytes budget, OrderMode order) {
  DurationBound best = order == OrderMode::kFixed ? fixed_cut_bound(graph, budget) : free_cut_bound(graph, budget);
  if (best.duration <= graph.base_duration) best = {"base", graph.base_duration};
  return best;
}

namespace {

/// Stages of about equal length, `count` of them at most.
std::vector<OpId> even_stages(const Graph& graph, std::int64_t count) {
  const auto n = static_cast<std::int64_t>(graph.num_ops());
  std::vector<OpId> first;
  for (std::int64_t s = 0; s < std::min(count, n); ++s) first.push_back(OpId(s * n / std::min(count, n)));
  return first;
}

}  // namespace

DurationBound best_duration_bound(const Graph& graph, Bytes budget, OrderMode order, std::optional<Duration> known,
                                  Limits& limits) {
  DurationBound best = cheap_duration_bound(graph, budget, order);
  if (known) best.duration = std::min(best.duration, *known);
  if (order == OrderMode::kFree) return best;
  const auto n = static_cast<std::int64_t>(graph.num_ops());
  constexpr std::int64_t kMostColumns = 400'000;
  for (std::int64_t stages = std::min<std::int64_t>(8, n);; stages = std::min(2 * stages, n)) {
    const std::int64_t columns = stages * static_cast<std::int64_t>(graph.num_ops() + 2 * graph.num_values()) / 2;
    if (columns > kMostColumns || limits.reached() || (known && best.duration >= *known)) break;
    StageSpec spec{.budget = budget, .first = even_stages(graph, stages), .cutoff = std::nullopt};
    if (known) spec.cutoff = *known - Duration(1);
    const StageModel model(graph, spec);
    StageEffort effort;
    effort.integer = false;
    effort.fixing_rounds = 1;
    const StageOutcome outcome = solve_stages(graph, model, spec, effort, limits);
    if (outcome.bound > best.duration) best = {"stage_lp", outcome.bound};
    if (stages == n) break;
  }
  return best;
}

}  // namespace remat
