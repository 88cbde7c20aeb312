#include "exact/relief.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "base/numbers.h"
#include "remat/check.h"

namespace remat {
namespace {

constexpr int kMostMoments = 64;
constexpr int kMostWithoutGain = 6;
constexpr std::int64_t kMostTicks = 400'000'000;
constexpr std::int64_t kTicksPerUnit = 50;

/// True if the excess would remain at the last moment even at twice the pace.
bool is_hopeless(int moment, Bytes excess_at_first, Bytes least_excess) {
  constexpr int kFewMoments = 8, kFaster = 2;
  const Wide gone = Wide((excess_at_first - least_excess).count()) * kFaster;
  return moment >= kFewMoments && gone * (kMostMoments - moment) < Wide(least_excess.count()) * moment;
}

}  // namespace

std::optional<Script> relieved_at(const Graph& graph, const Script& script, const Unrolled& all, OpId step,
                                  Bytes budget, const FetchPrices* prices, Limits& limits,
                                  ReliefEffort effort) {
  const FetchPrices* fetch = prices ? &all.prices : nullptr;
  const RetentionResult found =
      effort == ReliefEffort::kQuick
          ? quick_retention(all.graph, step, budget, kMostTicks, &limits, fetch)
          : solve_retention(all.graph, step, budget, OrderMode::kFixed, kMostTicks, &limits, fetch);
  limits.spend(1 + found.ticks / kTicksPerUnit + std::ssize(script) / 64);
  if (!found.choice) return std::nullopt;
  Script next;
  for (const Item& item : script_of(all.graph, *found.choice))
    next.push_back(item.op ? script[at(item.op.index())] : Item{OpId::none(), all.value[item.fetched]});
  Script result = without_unread(graph, next);
  // With fetches the script is no plan yet: the times of copies are open.
  REMAT_ASSERT_HEAVY(prices || !validate(graph, steps_of(result), OrderMode::kFree) ||
                         simulate(graph, steps_of(result)).duration == kTooLong,
                     step, result.size());
  return result;
}

void relieve(const Graph& graph, Script script, Bytes budget, const FetchPrices* prices, Limits& limits,
             ReliefEffort effort, const SeenScript& seen) {
  Bytes least, lowest, at_first;
  int without_gain = 0;
  if (limits.reached()) return;
  for (int moment = 0;; ++moment) {
    const std::optional<Unrolled> all = unrolled(graph, script, prices);
    if (!all) return;
    const Simulation cost = simulate(all->graph, keep_all_plan(all->graph));
    if (!seen(script, cost.peak) || cost.peak <= budget) return;
    if (moment == 0) lowest = at_first = cost.peak;
    lowest = std::min(lowest, cost.peak);
    if (moment == kMostMoments || limits.reached()) return;
    if (effort == ReliefEffort::kFull && is_hopeless(moment, at_first - budget, lowest - budget)) return;
    // The peak may rise from one moment to the next, but only a few times in a row.
    const bool gained = moment == 0 || cost.peak.count() < least.count() - least.count() / 100;
    if (gained) least = cost.peak;
    without_gain = gained ? 0 : without_gain + 1;
    if (without_gain > kMostWithoutGain) return;
    std::optional<Script> next =
        relieved_at(graph, script, *all, OpId(cost.peak_step.index()), budget, prices, limits, effort);
    if (!next || *next == script) return;
    script = std::move(*next);
  }
}

}  // namespace remat
