#include "executors/search.h"

#include <algorithm>
#include <utility>

#include "base/numbers.h"
#include "exact/retention_cut.h"
#include "model/step.h"

namespace remat::executors {

bool Search::fits(const Simulation& cost) const {
  const Bytes on_host = shape_.host ? shape_.host->budget.value_or(kNoBudget) : kNoBudget;
  return cost.peak <= budget_ && cost.traffic.host_peak <= on_host;
}

std::optional<Simulation> Search::evaluate(const Choice& asked) {
  auto choice = settled(shape_, asked);
  if (!choice) return std::nullopt;
  const Graph& graph = *shape_.graph;
  Found found{std::move(*choice), {}, {}};
  found.plan = plan_of(shape_, found.choice);
  found.cost = simulate(graph, found.plan, shape_.host ? &*shape_.host : nullptr);
  ++looked_at_;
  limits_.spend(1 + narrow<std::int64_t>(found.plan.steps.size()) / 8);
  const auto low = [](const Found& one) { return std::pair(one.cost.peak, one.cost.duration); };
  const auto fast = [](const Found& one) { return std::pair(one.cost.duration, one.cost.peak); };
  const Simulation cost = found.cost;
  if (!lowest_ || low(found) < low(*lowest_)) lowest_ = found;
  if (fits(cost) && (!best_ || fast(found) < fast(*best_))) best_ = std::move(found);
  return cost;
}

void Search::start() {
  const Graph& graph = *shape_.graph;
  const Again none(graph.num_ops(), false);
  if (const auto cost = evaluate({none}); cost && fits(*cost)) return;
  evaluate({shape_.may});
  if (shape_.host) {
    const Offloaded all(graph.num_values(), true);
    evaluate({none, all});
    evaluate({shape_.may, all});
  }
  if (shape_.executor == Executor::kPartitioner) try_cuts();
}

/// Minimum cuts at the moment between the halves, each with the room reduced by the last plan's excess over
/// the budget; then bisects between the last two rooms on either side of it.
void Search::try_cuts() {
  constexpr std::int64_t kMostTicks = 100'000'000;
  constexpr int kMostCuts = 40;
  constexpr double kWithHost = 0.3;  // of the limits: changes of single ops are left as much to find
  const Graph& graph = *shape_.graph;
  const Bytes beside = need_of(graph, shape_.first_backward);
  Limits part(limits_, shape_.host ? kWithHost : 1.0);
  Bytes fits, over = budget_;  // rooms
  bool is_within = best_ && !shape_.host;
  for (int i = 0; i < kMostCuts && !part.reached(); ++i) {
    const Bytes room = is_within ? fits + Bytes((over - fits).count() / 2) : over;
    const auto found = solve_retention(graph, shape_.first_backward, room, OrderMode::kFixed, kMostTicks,
                                       &part, shape_.host ? &shape_.prices : nullptr);
    part.spend(1 + found.ticks / 50);
    if (!found.choice) return;
    const auto cost = evaluate({found.choice->rerun, found.choice->fetched});
    const Bytes held = beside + found.choice->held;
    if (cost && this->fits(*cost)) {
      fits = held;
      is_within = true;
    } else if (is_within) {
      over = held - Bytes(1);
    } else {
      over = held - std::max(Bytes(1), cost ? cost->peak - budget_ : Bytes());
    }
    if (is_within && over - fits <= Bytes(1)) return;
  }
}

bool Search::may(OpId op, Fate fate) const {
  const auto outputs = shape_.graph->outputs[op];
  switch (fate) {
    case Fate::kSaved:
      return true;
    case Fate::kAgain:
      return shape_.may[op];
    case Fate::kOffloaded:
      return shape_.host &&
             std::ranges::any_of(outputs, [&](ValueId v) { return shape_.prices[v] < kMaxCount; });
  }
  return false;
}

Search::Fate Search::fate_of(const Choice& choice, OpId op) const {
  if (choice.again[op]) return Fate::kAgain;
  const auto outputs = shape_.graph->outputs[op];
  const bool any = std::ranges::any_of(outputs, [&](ValueId v) { return choice.offloads(v); });
  return any ? Fate::kOffloaded : Fate::kSaved;
}

Duration Search::time_of(OpId op, Fate fate) const {
  Duration time;
  if (fate == Fate::kAgain) time = shape_.graph->duration[op];
  if (fate == Fate::kOffloaded) {
    for (ValueId v : shape_.graph->outputs[op]) {
      if (shape_.prices[v] < kMaxCount) time += Duration(shape_.prices[v]);
    }
  }
  return time;
}

Duration Search::gain_of(const Move& move) const {
  Duration sum;
  for (OpId op : move.ops) sum += time_of(op, fate_of(best_->choice, op)) - time_of(op, move.fate);
  return sum;
}

std::optional<Choice> Search::changed(const Choice& choice, const Move& move) const {
  Choice next = choice;
  if (shape_.host) next.offloaded.resize(shape_.graph->num_values());
  bool any = false;
  for (OpId op : move.ops) {
    if (fate_of(choice, op) == move.fate) continue;
    any = true;
    next.again[op] = move.fate == Fate::kAgain;
    if (!shape_.host) continue;
    for (ValueId v : shape_.graph->outputs[op]) next.offloaded[v] = move.fate == Fate::kOffloaded;
  }
  return any ? std::optional(std::move(next)) : std::nullopt;
}

void Search::lower() {
  const auto over = [&] { return lowest_ && !best_ && !limits_.reached(); };
  for (bool lower = true; lower && over();) {
    const Bytes before = lowest_->cost.peak;
    for (OpId op : IdRange<OpId>(OpId(0), shape_.first_backward)) {
      const Fate now = fate_of(lowest_->choice, op);
      for (Fate fate : {Fate::kSaved, Fate::kAgain, Fate::kOffloaded}) {
        if (!over()) return;
        if (fate == now || !may(op, fate)) continue;
        if (const auto next = changed(lowest_->choice, {{op}, fate})) evaluate(*next);
      }
    }
    lower = lowest_->cost.peak < before;
  }
}

void Search::improve_once(bool& better) {
  std::vector<Move> moves;
  for (const CheckpointRegion& region : shape_.regions) moves.push_back({region.ops, Fate::kSaved});
  for (OpId op : shape_.graph->ops()) {
    const Fate now = fate_of(best_->choice, op);
    if (now == Fate::kSaved) continue;
    for (Fate fate : {Fate::kSaved, Fate::kAgain, Fate::kOffloaded}) {
      if (fate != now && may(op, fate)) moves.push_back({{op}, fate});
    }
  }
  std::vector<std::pair<Duration, std::size_t>> order;
  for (std::size_t i = 0; i < moves.size(); ++i) {
    const Duration gain = gain_of(moves[i]);
    if (gain >= Duration()) order.emplace_back(Duration() - gain, i);
  }
  std::ranges::sort(order);
  for (const auto& [negative, i] : order) {
    if (limits_.reached()) return;
    const auto next = changed(best_->choice, moves[i]);
    if (!next) continue;
    const Duration before = best_->cost.duration;
    evaluate(*next);
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
