#include "bounds/host.h"

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

DurationBound host_duration_bound(const Graph& graph, Bytes budget, OrderMode order, const Host& host,
                                  Limits& limits) {
  const DurationBound base{"base", graph.base_duration};
  if (order == OrderMode::kFree) return base;
  OpId at;
  fixed_cut_bound(graph, budget, &at);
  if (!at) return base;
  const Duration extra = solve_offload(graph, at, budget, host, limits).bound;
  return extra > Duration() ? DurationBound{"offload", graph.base_duration + extra} : base;
}

}  // namespace remat
