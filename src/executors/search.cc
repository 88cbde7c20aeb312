#include "executors/search.h"

#include <algorithm>
#include <utility>

#include "base/numbers.h"
#include "exact/retention_cut.h"
#include "model/step.h"

namespace remat::executors {

std::optional<Simulation> Search::evaluate(const Again& again) {
  auto choice = settled(shape_, again);
  if (!choice) return std::nullopt;
  const Graph& graph = *shape_.graph;
  Found found{std::move(*choice), {}, {}};
  found.plan = plan_of(shape_, found.again);
  found.cost = simulate(graph, found.plan);
  ++looked_at_;
  limits_.spend(1 + narrow<std::int64_t>(found.plan.steps.size()) / 8);
  const auto low = [](const Found& one) { return std::pair(one.cost.peak, one.cost.duration); };
  const auto fast = [](const Found& one) { return std::pair(one.cost.duration, one.cost.peak); };
  const Simulation cost = found.cost;
  if (!lowest_ || low(found) < low(*lowest_)) lowest_ = found;
  if (cost.peak <= budget_ && (!best_ || fast(found) < fast(*best_))) best_ = std::move(found);
  return cost;
}

void Search::start() {
  const Graph& graph = *shape_.graph;
  evaluate(Again(graph.num_ops(), false));
  if (best_) return;
  evaluate(shape_.may);
  if (shape_.executor == Executor::kPartitioner) try_cuts();
}

/// Minimum cuts at the moment between the halves, each with the room reduced by the last plan's excess over
/// the budget; then bisects between the last two rooms on either side of it.
void Search::try_cuts() {
  constexpr std::int64_t kMostTicks = 100'000'000;
  constexpr int kMostCuts = 40;
  const Graph& graph = *shape_.graph;
  const Bytes beside = need_of(graph, shape_.first_backward);
  Bytes fits, over = budget_;  // rooms
  for (int i = 0; i < kMostCuts && !limits_.reached(); ++i) {
    const Bytes room = best_ ? fits + Bytes((over - fits).count() / 2) : over;
    const auto found =
        solve_retention(graph, shape_.first_backward, room, OrderMode::kFixed, kMostTicks, &limits_);
    limits_.spend(1 + found.ticks / 50);
    if (!found.choice) return;
    const auto cost = evaluate(found.choice->rerun);
    const Bytes held = beside + found.choice->held;
    if (cost && cost->peak <= budget_) {
      fits = held;
    } else if (best_) {
      over = held - Bytes(1);
    } else {
      over = held - std::max(Bytes(1), cost ? cost->peak - budget_ : Bytes());
    }
    if (best_ && over - fits <= Bytes(1)) return;
  }
}

void Search::lower() {
  const auto over = [&] { return lowest_ && !best_ && !limits_.reached(); };
  for (bool lower = true; lower && over();) {
    const Bytes before = lowest_->cost.peak;
    for (OpId op : shape_.graph->ops()) {
      if (!over()) return;
      if (!shape_.may[op]) continue;
      Again again = lowest_->again;
      again[op] = !again[op];
      evaluate(again);
    }
    lower = lowest_->cost.peak < before;
  }
}

void Search::improve_once(bool& better) {
  const Graph& graph = *shape_.graph;
  std::vector<std::vector<OpId>> moves;
  for (const CheckpointRegion& region : shape_.regions) moves.push_back(region.ops);
  for (OpId op : graph.ops()) {
    if (best_->again[op]) moves.push_back({op});
  }
  const auto gain = [&](const std::vector<OpId>& ops) {
    Duration sum;
    for (OpId op : ops) sum += best_->again[op] ? graph.duration[op] : Duration();
    return sum;
  };
  std::vector<std::pair<Duration, std::size_t>> order;
  for (std::size_t i = 0; i < moves.size(); ++i) order.emplace_back(Duration() - gain(moves[i]), i);
  std::ranges::sort(order);
  for (const auto& [negative, i] : order) {
    if (limits_.reached()) return;
    Again again = best_->again;
    bool any = false;
    for (OpId op : moves[i]) {
      any = any || again[op];
      again[op] = false;
    }
    if (!any) continue;
    const Duration before = best_->cost.duration;
    evaluate(again);
    better = better || best_->cost.duration < before;
  }
}

void Search::improve() {
  for (bool better = best_.has_value(); better && !limits_.reached();) {
    better = false;
    improve_once(better);
  }
}

}  // namespace remat::executors
