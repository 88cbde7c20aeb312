#include "exact/retention_cut.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "base/numbers.h"
#include "exact/moment.h"
#include "graph/need.h"

namespace remat {
namespace {

/// cost / bytes as a price whose sums stay far below 2^62.
Price price_of(std::int64_t cost, std::int64_t bytes, const Moment& moment) {
  constexpr Wide kRoom = Wide(1) << 60;
  Wide per_cost = bytes, per_byte = cost;
  Wide whole = Wide(moment.most_cost()) * bytes + Wide(moment.most_bytes()) * cost;
  // kRoom x either must stay within 127 bits.
  while (std::max(per_cost, per_byte) >> 60 > 0) {
    per_cost >>= 1;
    per_byte >>= 1;
    whole >>= 1;
  }
  const auto part = [&](Wide share) {
    return std::max<std::int64_t>(1, static_cast<std::int64_t>(kRoom * share / std::max<Wide>(1, whole)));
  };
  return {part(per_cost), part(per_byte)};
}

/// Follows the hull of (held, cost) to the room.
class Hull {
 public:
  Hull(Moment& moment, Bytes room, std::int64_t most_ticks, int most_secants = 60)
      : moment_(moment),
        room_(room),
        most_ticks_(most_ticks),
        most_secants_(most_secants),
        beyond_(moment.keep_all()) {}

  /// False where the ticks ran out before a choice fitted.
  bool run() {
    if (beyond_->retention.held <= room_) {
      within_ = std::exchange(beyond_, std::nullopt);
    } else if (find_within()) {
      close_in();
    }
    return within_.has_value();
  }
  /// No choice that fits costs less.
  std::int64_t bound() const { return bound_; }
  const std::optional<Moment::Choice>& within() const { return within_; }

 private:
  static constexpr int kMostRaises = 40;

  /// One minimum cut; false where nothing new comes of it.
  bool look(Price price) {
    auto choice = moment_.cheapest(price, most_ticks_ - moment_.ticks());
    if (!choice) return false;
    const Wide rest = Wide(choice->least) - Wide(room_.count()) * price.per_byte;
    // No choice costs more than the dearest, so a bound above it says that none fits.
    if (rest > 0) {
      const Wide least = (rest + price.per_cost - 1) / price.per_cost;
      bound_ = std::max(bound_, static_cast<std::int64_t>(std::min<Wide>(least, moment_.most_cost())));
    }
    const bool fits = choice->retention.held <= room_;
    auto& side = fits ? within_ : beyond_;
    const bool nearer =
        !side || (fits ? choice->cost < side->cost : choice->retention.held < side->retention.held);
    if (nearer) side = std::move(choice);
    return nearer;
  }

  /// Raises the price until a choice fits.
  bool find_within() {
    std::int64_t cost = moment_.most_cost(), bytes = moment_.most_bytes();
    for (int i = 0; i < kMostRaises && moment_.ticks() < most_ticks_; ++i) {
      look(price_of(cost, bytes, moment_));
      if (within_) return true;
      if (cost < (std::int64_t{1} << 59)) {
        cost *= 4;
      } else {
        bytes = std::max<std::int64_t>(1, bytes / 4);
      }
    }
    return false;
  }

  void close_in() {
    for (int i = 0; i < most_secants_; ++i) {
      const std::int64_t more = within_->cost - beyond_->cost;
      const Bytes less = beyond_->retention.held - within_->retention.held;
      if (more <= 0 || less <= Bytes() || !look(price_of(more, less.count(), moment_))) return;
    }
  }

  Moment& moment_;
  Bytes room_;
  std::int64_t most_ticks_;
  int most_secants_;
  std::int64_t bound_ = 0;
  std::optional<Moment::Choice> within_, beyond_;
};

}  // namespace

RetentionResult solve_retention(const Graph& graph, OpId at, Bytes budget, OrderMode order,
                                std::int64_t most_ticks, Limits* limits, const FetchPrices* fetch) {
  RetentionResult result;
  Moment moment(graph, at, order, fetch);
  moment.stop_with(limits);
  const Bytes room = budget - need_of(graph, at);
  Hull hull(moment, room, most_ticks);
  const bool found = hull.run();
  result.bound = Duration(hull.bound());
  if (found) result.choice = hull.within()->retention;
  // Among equal prices the hull has no point in between: once more, with all prices different.
  if (found && result.choice->extra > result.bound && moment.skew()) {
    Hull finer(moment, room, most_ticks);
    if (finer.run() && finer.within()->retention.extra < result.choice->extra)
      result.choice = finer.within()->retention;
  }
  result.ticks = moment.ticks();
  return result;
}

RetentionResult quick_retention(const Graph& graph, OpId at, Bytes budget, std::int64_t most_ticks,
                                Limits* limits, const FetchPrices* fetch) {
  constexpr int kFewSecants = 3;
  RetentionResult result;
  Moment moment(graph, at, OrderMode::kFixed, fetch);
  moment.stop_with(limits);
  moment.skew();
  Hull hull(moment, budget - need_of(graph, at), most_ticks, kFewSecants);
  if (hull.run()) result.choice = hull.within()->retention;
  result.ticks = moment.ticks();
  return result;
}

Duration retention_bound(const Graph& graph, OpId at, Bytes budget, OrderMode order, std::int64_t most_ticks,
                         Limits* limits) {
  Moment moment(graph, at, order);
  moment.stop_with(limits);
  Hull hull(moment, budget - need_of(graph, at), most_ticks);
  hull.run();
  return Duration(hull.bound());
}

Script script_of(const Graph& graph, const Retention& choice) {
  Script script;
  for (OpId op : IdRange<OpId>(OpId(0), choice.at)) script.push_back({op, ValueId::none()});
  IndexVector<OpId, bool> is_back(graph.num_ops(), false);
  IndexVector<ValueId, bool> is_fetched(graph.num_values(), false);
  std::vector<std::pair<OpId, bool>> pending;  // an op, and whether its inputs have been seen to
  const auto ask_for = [&](ValueId v) {
    const OpId maker = graph.producer[v];
    if (!maker || maker >= choice.at || !may_be_lost(graph, choice.at, v)) return;
    if (choice.rerun[maker]) {
      if (!is_back[maker]) pending.emplace_back(maker, false);
    } else if (choice.fetches(v) && !is_fetched[v]) {
      is_fetched[v] = true;
      script.push_back({OpId::none(), v});
    }
  };
  const auto bring = [&](ValueId wanted) {
    ask_for(wanted);
    while (!pending.empty()) {
      auto& [op, ready] = pending.back();
      const OpId run = op;
      if (is_back[run] || ready) {
        if (!is_back[run]) script.push_back({run, ValueId::none()});
        is_back[run] = true;
        pending.pop_back();
        continue;
      }
      ready = true;
      for (ValueId v : graph.inputs[run]) ask_for(v);
    }
  };
  script.push_back({choice.at, ValueId::none()});
  for (OpId op : IdRange<OpId>(choice.at.next(), OpId(graph.ops().size()))) {
    for (ValueId v : graph.inputs[op]) bring(v);
    script.push_back({op, ValueId::none()});
  }
  for (ValueId v : graph.graph_outputs) bring(v);
  return script;
}

Plan plan_of(const Graph& graph, const Retention& choice) { return steps_of(script_of(graph, choice)); }

}  // namespace remat
