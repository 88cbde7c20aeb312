#include "planners/offload/joint.h"

#include <utility>

#include "base/numbers.h"
#include "exact/unrolled.h"

namespace remat::offload {

Script joint_choice(const Graph& graph, Bytes budget, const FetchPrices& prices, Limits& limits) {
  constexpr int kMostMoments = 64, kMostWithoutGain = 6;
  constexpr std::int64_t kMostTicks = 400'000'000, kTicksPerUnit = 50;
  Script script = remat::script_of(keep_all_plan(graph));
  Bytes least;
  int without_gain = 0;
  for (int moment = 0; moment < kMostMoments && !limits.reached(); ++moment) {
    const std::optional<Unrolled> all = unrolled(graph, script, &prices);
    if (!all) break;
    const Simulation cost = simulate(all->graph, keep_all_plan(all->graph));
    if (cost.peak <= budget) break;
    // The next moment may be dearer than the one that was relieved, but not for ever.
    const bool gained = moment == 0 || cost.peak.count() < least.count() - least.count() / 100;
    if (gained) least = cost.peak;
    without_gain = gained ? 0 : without_gain + 1;
    if (without_gain > kMostWithoutGain) break;
    const RetentionResult found = solve_retention(all->graph, OpId(cost.peak_step.index()), budget,
                                                  OrderMode::kFixed, kMostTicks, &limits, &all->prices);
    limits.spend(1 + found.ticks / kTicksPerUnit + std::ssize(script) / 64);
    if (!found.choice) break;
    Script next;
    for (const Item& item : script_of(all->graph, *found.choice)) {
      next.push_back(item.op ? script[at(item.op.index())] : Item{OpId::none(), all->value[item.fetched]});
    }
    next = without_unread(graph, next);
    if (next == script) break;
    script = std::move(next);
  }
  return script;
}

}  // namespace remat::offload
