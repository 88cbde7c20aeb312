#include "bounds/host.h"

#include <algorithm>

#include "base/numbers.h"
#include "bounds/cut.h"
#include "exact/offload_moment.h"
#include "graph/need.h"

namespace remat {

PeakBound host_peak_bound(const Graph& graph) {
  PeakBound best{"floor", graph.resident, OpId::none()};
  for (OpId op : graph.ops()) {
    if (const Bytes needs = need_of(graph, op); needs > best.peak) best = {"floor", needs, op};
  }
  return best;
}

std::vector<OpId> scarce_moments(const Graph& graph, Bytes budget, int most) {
  OpId dearest;
  fixed_cut_bound(graph, budget, &dearest);
  if (!dearest) return {};
  std::vector<OpId> moments{dearest}, over;
  IndexVector<StepId, Bytes> memory;
  simulate(graph, keep_all_plan(graph), memory);
  for (OpId op : graph.ops()) {
    if (memory[StepId(op.index())] > budget) over.push_back(op);
  }
  const std::int64_t count = std::min<std::int64_t>(most, std::ssize(over)) - 1;
  for (std::int64_t i = 0; i < count; ++i) {
    const OpId op = over[at((2 * i + 1) * std::ssize(over) / (2 * count))];
    if (op != dearest) moments.push_back(op);
  }
  return moments;
}

DurationBound host_duration_bound(const Graph& graph, Bytes budget, OrderMode order, const Host& host,
                                  Limits& limits) {
  constexpr int kMostMoments = 8;
  DurationBound best{"base", graph.base_duration};
  if (order == OrderMode::kFree) return best;
  for (OpId at : scarce_moments(graph, budget, kMostMoments)) {
    if (limits.reached()) break;
    const Duration extra = solve_offload(graph, at, budget, host, limits).bound;
    if (graph.base_duration + extra > best.duration) best = {"offload", graph.base_duration + extra};
  }
  return best;
}

}  // namespace remat
