#include "bounds/walk.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "base/numbers.h"
#include "exact/relief.h"
#include "exact/retention_cut.h"
#include "exact/unrolled.h"

namespace remat {
namespace {

constexpr std::int64_t kWindows = 96;           ///< of the ops: the peak step of each is tried
constexpr std::int64_t kWalkTicksPerOp = 4000;  ///< of a minimum cut: about ten microseconds per op
constexpr std::int64_t kMostWalkTicks = 20'000'000;

/// The peak step of a first run and of the reruns before it.
struct Peak {
  OpId first;       ///< of the graph
  OpId step;        ///< of the unrolled script
  OpId first_step;  ///< the first run itself there
  Bytes memory;
};

std::vector<Peak> dearest_of_windows(const Graph& graph, const Script& script, const Unrolled& all,
                                     Bytes budget, std::span<const OpId> excluded) {
  IndexVector<StepId, Bytes> memory;
  simulate(all.graph, keep_all_plan(all.graph), memory);
  const std::int64_t width = std::max<std::int64_t>(1, graph.ops().size() / kWindows);
  IndexVector<OpId, bool> has_run(graph.num_ops(), false);
  for (OpId op : excluded) has_run[op] = true;
  std::vector<Peak> peaks;
  Peak here;
  for (int i : indices(script)) {
    if (memory[StepId(i)] > here.memory) here = {OpId::none(), OpId(i), OpId::none(), memory[StepId(i)]};
    const OpId op = script[at(i)].op;
    if (!op || has_run[op]) continue;
    has_run[op] = true;
    here.first = op;
    here.first_step = OpId(i);
    if (here.memory > budget) {
      const bool same = !peaks.empty() && peaks.back().first.index() / width == op.index() / width;
      if (!same) {
        peaks.push_back(here);
      } else if (here.memory > peaks.back().memory) {
        peaks.back() = here;
      }
    }
    here = {};
  }
  return peaks;
}

struct Found {
  Repair repair;
  OpId step;
};

Found dearest(const Graph& graph, const Script& script, const Unrolled& all, Bytes budget,
              std::span<const OpId> excluded, Limits& limits) {
  const auto ticks = std::min(kMostWalkTicks, kWalkTicksPerOp * std::ssize(script));
  Found found;
  for (const Peak& peak : dearest_of_windows(graph, script, all, budget, excluded)) {
    if (limits.reached()) break;
    const Duration extra = retention_bound(all.graph, peak.step, budget, OrderMode::kFixed, ticks, &limits);
    limits.spend(1 + std::ssize(script) / 32);
    if (!found.repair.at || extra > found.repair.extra) found = {{peak.first, extra}, peak.step};
  }
  return found;
}

}  // namespace

Repair dearest_repair(const Graph& graph, const Script& script, Bytes budget, std::span<const OpId> excluded,
                      Limits& limits) {
  const std::optional<Unrolled> all = unrolled(graph, script);
  return all ? dearest(graph, script, *all, budget, excluded, limits).repair : Repair{};
}

std::vector<Repair> repairs_in_turn(const Graph& graph, Bytes budget, std::int64_t most, Limits& limits) {
  std::vector<Repair> repairs;
  std::vector<OpId> seen;
  Script script = script_of(keep_all_plan(graph));
  while (std::ssize(repairs) < most && !limits.reached()) {
    const std::optional<Unrolled> all = unrolled(graph, script);
    if (!all) break;
    const Found next = dearest(graph, script, *all, budget, seen, limits);
    if (!next.repair.at) break;
    repairs.push_back(next.repair);
    seen.push_back(next.repair.at);
    std::optional<Script> relieved =
        relieved_at(graph, script, *all, next.step, budget, nullptr, limits, ReliefEffort::kFull);
    if (!relieved) break;
    script = std::move(*relieved);
  }
  return repairs;
}

}  // namespace remat
