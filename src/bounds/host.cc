#include "bounds/host.h"

#include <algorithm>
#include <iterator>
#include <set>

#include "base/numbers.h"
#include "bounds/cut.h"
#include "exact/offload_moment.h"
#include "model/step.h"

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
  constexpr int kMostMoments = 8, kHalvings = 3;
  DurationBound best{"base", graph.base_duration};
  if (order == OrderMode::kFree) return best;
  OpId dearest;
  std::set<OpId> tried;
  const auto look_at = [&](OpId op) {
    if (limits.reached() || !tried.insert(op).second) return;
    const Duration extra = offload_bound(graph, op, budget, host, limits);
    if (graph.base_duration + extra <= best.duration) return;
    best = {"offload", graph.base_duration + extra};
    dearest = op;
  };
  for (OpId op : scarce_moments(graph, budget, kMostMoments)) look_at(op);
  // Refines around the best moment, by halving the distance to its neighbours.
  for (int i = 0; i < kHalvings && dearest; ++i) {
    const auto found = tried.find(dearest);
    const OpId before = found == tried.begin() ? dearest : *std::prev(found);
    const OpId after = std::next(found) == tried.end() ? dearest : *std::next(found);
    const OpId middle = dearest;
    look_at(OpId((before.index() + middle.index()) / 2));
    look_at(OpId((middle.index() + after.index()) / 2));
  }
  return best;
}

}  // namespace remat
