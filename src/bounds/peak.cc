#include <algorithm>

#include "base/numbers.h"
#include "base/sorted.h"
#include "bounds/last_run.h"
#include "bounds/pebbling.h"
#include "model/step.h"
#include "remat/bounds.h"
#include "remat/check.h"

namespace remat {

PeakBound floor_bound(const Graph& graph) {
  PeakBound best{"floor", graph.resident, OpId::none()};
  for (ValueId v : graph.graph_outputs) {
    if (!graph.is_graph_input(v)) best.peak += graph.bytes[v];
  }
  for (OpId op : graph.ops()) {
    const Bytes needs = need_of(graph, op);
    if (needs > best.peak) best = {"floor", needs, op};
  }
  return best;
}

PeakBound forced_bound(const Graph& graph) {
  // appears[op] less vanishes[op]: change of the forced bytes from the step before to the first run of op.
  IndexVector<OpId, Bytes> change(graph.num_ops() + 2);
  const OpId past_the_end(graph.ops().size());
  for (ValueId v : graph.values()) {
    const OpId maker = graph.producer[v];
    if (!maker || graph.recomputable[maker]) continue;
    const auto readers = graph.readers[v];
    if (readers.empty() && !graph.kept[v]) continue;
    change[maker.next()] += graph.bytes[v];
    change[graph.kept[v] ? past_the_end : readers.back().next()] -= graph.bytes[v];
  }
  PeakBound best{"forced", graph.resident, OpId::none()};
  Bytes forced;
  for (OpId op : graph.ops()) {
    forced += change[op];
    Bytes needs = graph.resident + momentary(graph, op) + forced;
    for (ValueId v : graph.outputs[op]) needs += graph.bytes[v];
    for (ValueId v : graph.inputs[op]) {
      if (!graph.is_graph_input(v) && graph.recomputable[graph.producer[v]]) needs += graph.bytes[v];
    }
    for (const auto& [input, bytes] : reuses(graph, op)) {
      const bool is_forced = !graph.recomputable[graph.producer[input]] &&
                             (graph.kept[input] || graph.readers[input].back() > op);
      if (!is_forced) needs -= bytes;
    }
    if (needs > best.peak) best = {"forced", needs, op};
  }
  return best;
}

namespace {

/// Work units of `pebbling_bound` beyond the linear part: a few milliseconds.
constexpr std::int64_t kPebblingUnits = 200'000;

std::vector<ValueId> made_values(const Graph& graph, std::span<const ValueId> values) {
  std::vector<ValueId> made;
  for (ValueId v : values) {
    if (!graph.is_graph_input(v)) made.push_back(v);
  }
  return made;
}

/// The values that must be in memory at one moment: the inputs of an op when it runs (in fixed order also
/// values that must not be recomputed, across its first run), or all kept outputs at the end.
struct Moment {
  OpId op;  ///< none: the end
  Bytes need;
  friend bool operator<(const Moment& a, const Moment& b) {
    return a.need != b.need ? a.need > b.need : a.op < b.op;
  }
};

std::vector<ValueId> alive_at(const Graph& graph, const Moment& moment,
                              std::span<const ValueId> never_values) {
  if (!moment.op) return made_values(graph, graph.graph_outputs);
  std::vector<ValueId> alive = made_values(graph, graph.inputs[moment.op]);
  for (ValueId v : never_values) {
    if (graph.producer[v] >= moment.op) continue;
    const auto readers = graph.readers[v];
    if (graph.kept[v] || (!readers.empty() && readers.back() >= moment.op)) alive.push_back(v);
  }
  sort_unique(alive);
  return alive;
}

/// Most arcs that `last_run_bound` visits (0.1 s), and most ops for it: on larger graphs that is a few flows,
/// which prove nothing.
constexpr std::int64_t kLastRunTicks = 20'000'000;
constexpr std::size_t kLastRunOps = 20'000;

}  // namespace

PeakBound pebbling_bound(const Graph& graph, OrderMode order, const PeakBound& known) {
  constexpr std::size_t kMostMoments = 4096, kMostNever = 256;
  Pebbling pebbling(graph, order);
  std::vector<Moment> moments;
  Bytes end_need = graph.resident;
  for (ValueId v : made_values(graph, graph.graph_outputs)) end_need += graph.bytes[v];
  moments.push_back({OpId::none(), end_need});
  for (OpId op : graph.ops()) {
    if (!graph.inputs[op].empty()) moments.push_back({op, pebbling.need(op, {})});
  }
  // Only moments that need much memory are likely to force a higher one before them.
  const std::size_t count = std::min(kMostMoments, moments.size());
  std::partial_sort(moments.begin(), moments.begin() + static_cast<std::ptrdiff_t>(count), moments.end());
  std::vector<ValueId> never_values;
  if (order == OrderMode::kFixed) {
    for (ValueId v : graph.values()) {
      if (graph.producer[v] && !graph.recomputable[graph.producer[v]]) never_values.push_back(v);
    }
    if (never_values.size() > kMostNever) never_values.clear();
  }
  PeakBound best = known;
  std::int64_t units = kPebblingUnits;
  for (std::size_t m = 0; m < count && units > 0; ++m) {
    std::int64_t share = std::max<std::int64_t>(units / 8, 1000);
    const std::int64_t before = share;
    const Bytes raised = pebbling.raise(alive_at(graph, moments[m], never_values), best.peak, share);
    if (raised > best.peak) best = {"pebbling", raised, moments[m].op};
    units -= before - share;
  }
  return best;
}

PeakBound best_peak_bound(const Graph& graph, OrderMode order) {
  PeakBound best = floor_bound(graph);
  if (order == OrderMode::kFixed) {
    if (PeakBound forced = forced_bound(graph); forced.peak > best.peak) best = std::move(forced);
  }
  best = pebbling_bound(graph, order, best);
  if (graph.num_ops() <= kLastRunOps) best = last_run_bound(graph, order, best, kLastRunTicks);
  REMAT_ASSERT_HEAVY(best.peak <= simulate(graph, keep_all_plan(graph)).peak, best.argument, best.peak);
  return best;
}

}  // namespace remat
