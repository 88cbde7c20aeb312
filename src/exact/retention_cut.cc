#include "exact/retention_cut.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "base/numbers.h"
#include "exact/moment.h"
#include "model/step.h"
#include "remat/check.h"

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

Price price_at(double ratio, const Moment& moment) {
  constexpr double kOne = 0x1p52;
  const auto part = [](double share) { return static_cast<std::int64_t>(share); };
  return ratio < 1 ? price_of(part(kOne * ratio), part(kOne), moment)
                   : price_of(part(kOne), part(kOne / ratio), moment);
}

/// Follows the hull of (held, cost) to the room.
class Hull {
 public:
  Hull(Moment& moment, Bytes room, std::int64_t most_ticks, int most_secants = 60)
      : moment_(moment),
        room_(room),
        most_ticks_(most_ticks),
        most_secants_(most_secants),
        beyond_(End{moment.keep_all()}) {}

  /// False if the ticks ran out before a choice fitted.
  bool run() {
    if (beyond_->choice.retention.held <= room_) {
      within_ = std::exchange(beyond_, std::nullopt);
    } else if (find_within()) {
      close_in();
    }
    return within_.has_value();
  }
  /// The same from the ends of the unskewed hull, in half the cuts. Between its ends are now as many choices
  /// as there are layers.
  bool run_from(const Hull& straight) {
    if (!straight.within_ || !straight.beyond_) return run();
    within_ = End{moment_.priced(straight.within_->choice)};
    beyond_ = End{moment_.priced(straight.beyond_->choice)};
    if (close_in_by_prices()) return true;
    within_.reset();
    beyond_ = End{moment_.keep_all()};
    return run();
  }
  /// No choice that fits costs less.
  std::int64_t bound() const { return bound_; }
  const Moment::Choice& within() const { return within_->choice; }

 private:
  static constexpr int kMostRaises = 40;
  static constexpr std::int64_t kMostCount = std::int64_t{1} << 61;

  /// A choice, and the price at which this hull found it.
  struct End {
    Moment::Choice choice;
    std::optional<Price> price = {};

    Wide sum(Price at) const {
      return Wide(choice.cost) * at.per_cost + Wide(choice.retention.held.count()) * at.per_byte;
    }
  };

  /// One minimum cut; false if it finds nothing new.
  bool cut_at(Price price) {
    auto choice = moment_.cheapest(price, most_ticks_ - moment_.ticks());
    least_ = choice ? choice->least : -1;
    if (!choice) return false;
    const Wide rest = Wide(choice->least) - Wide(room_.count()) * price.per_byte;
    // A bound above the cost of every choice means that none fits.
    if (rest > 0) {
      const Wide least = (rest + price.per_cost - 1) / price.per_cost;
      bound_ = std::max(bound_, static_cast<std::int64_t>(std::min<Wide>(least, moment_.most_cost())));
    }
    fits_ = choice->retention.held <= room_;
    auto& side = fits_ ? within_ : beyond_;
    if (!side) {
      side = End{std::move(*choice), price};
      return true;
    }
    const bool nearer =
        fits_ ? choice->cost < side->choice.cost : choice->retention.held < side->choice.retention.held;
    if (nearer) side->choice = std::move(*choice);
    side->price = price;
    return nearer;
  }

  /// Raises the price until a choice fits. After six raises, one more than nearly all need, tries the highest
  /// price at once to see if any choice fits: one cut in place of thirty slow ones. Doing so after two raises
  /// cost lns 40 % of its tries (362 in place of 599).
  bool find_within() {
    constexpr int kFewRaises = 6;
    std::int64_t cost = moment_.most_cost(), bytes = moment_.most_bytes();
    for (int i = 0; i < kMostRaises && moment_.ticks() < most_ticks_; ++i) {
      if (i == kFewRaises) {
        cut_at(price_of(kMostCount, 1, moment_));
        if (!within_) return false;
        within_.reset();
      }
      cut_at(price_of(cost, bytes, moment_));
      if (within_) return true;
      if (cost < (std::int64_t{1} << 59)) {
        cost *= 4;
      } else {
        bytes = std::max<std::int64_t>(1, bytes / 4);
      }
    }
    return false;
  }

  /// The price at which both ends cost the same, so that any better choice is between them, if there is one.
  std::optional<Price> chord() const {
    const std::int64_t more = within_->choice.cost - beyond_->choice.cost;
    const Bytes less = beyond_->choice.retention.held - within_->choice.retention.held;
    return more > 0 && less > Bytes() ? std::optional(price_of(more, less.count(), moment_)) : std::nullopt;
  }

  void close_in() {
    for (int i = 0; i < most_secants_; ++i) {
      const auto price = chord();
      if (!price || !cut_at(*price)) return;
    }
  }

  /// If many choices lie between the ends, chords only halve them. So, once both ends have prices, takes the
  /// price between them at which the room is met by linear interpolation of the bytes (the Illinois method:
  /// an end that stays counts half), until no integer price is left between. False if an earlier end is not
  /// on the hull, or the ticks ran out.
  bool close_in_by_prices() {
    bool by_chord = true, fitted = false;
    double stays = 1;
    for (int i = 0; i < most_secants_; ++i) {
      by_chord |= !within_->price || !beyond_->price;
      const auto price = by_chord ? chord() : price_between(stays);
      if (!price || within_->choice.retention.held == room_) return true;
      const bool is_new = cut_at(*price);
      if (least_ < 0) return false;
      if (!is_new && by_chord) return least_ == std::min(within_->sum(*price), beyond_->sum(*price));
      stays = is_new && fits_ == fitted ? stays / 2 : 1;
      fitted = fits_;
      by_chord = !is_new;
    }
    return true;
  }

  /// Strictly between the prices of the ends.
  std::optional<Price> price_between(double stays) const {
    const Price high = *within_->price, low = *beyond_->price;
    double excess = real((beyond_->choice.retention.held - room_).count());
    double slack = real((room_ - within_->choice.retention.held).count());
    (fits_ ? excess : slack) *= stays;
    const double share = excess / (excess + slack);
    Price price = price_at(low.ratio() + (high.ratio() - low.ratio()) * share, moment_);
    if (price.ratio() >= high.ratio()) price = {high.per_cost, high.per_byte - 1};
    if (price.ratio() <= low.ratio()) price = {low.per_cost, low.per_byte + 1};
    const bool is_between = low.ratio() < price.ratio() && price.ratio() < high.ratio();
    return is_between ? std::optional(price) : std::nullopt;
  }

  Moment& moment_;
  Bytes room_;
  std::int64_t most_ticks_;
  int most_secants_;
  std::int64_t bound_ = 0;
  std::optional<End> within_, beyond_;
  bool fits_ = false;        ///< of the last choice
  std::int64_t least_ = -1;  ///< its sum, or -1 where the ticks ran out
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
  if (found) result.choice = hull.within().retention;
  // With equal prices the hull has no point in between: repeats with distinct prices.
  if (found && result.choice->extra > result.bound && moment.skew()) {
    Hull finer(moment, room, most_ticks);
    if (finer.run_from(hull) && finer.within().retention.extra < result.choice->extra)
      result.choice = finer.within().retention;
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
  if (hull.run()) result.choice = hull.within().retention;
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
  std::vector<std::pair<OpId, bool>> pending;  // an op, and whether its inputs are done
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

Plan plan_of(const Graph& graph, const Retention& choice) {
  Plan plan = steps_of(script_of(graph, choice));
  REMAT_ASSERT_HEAVY(!validate(graph, plan, OrderMode::kFixed) || simulate(graph, plan).duration == kTooLong,
                     choice.at);
  return plan;
}

}  // namespace remat
