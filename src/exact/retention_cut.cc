#include "exact/retention_cut.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "base/numbers.h"
#include "graph/max_flow.h"
#include "graph/need.h"

namespace remat {
namespace {

/// Cost and memory in one sum: cost x per_cost + bytes x per_byte.
struct Price {
  std::int64_t per_cost, per_byte;
};

/// Is the value gone after the step of `at`, unless it is kept across it? What the step reads is there; it is
/// gone where the step writes over it.
bool may_be_lost(const Graph& graph, OpId at, ValueId v) {
  const auto inputs = graph.inputs[at];
  if (!std::binary_search(inputs.begin(), inputs.end(), v)) return true;
  const auto row = graph.over[at];
  return std::any_of(row.begin(), row.end(),
                     [&](const Over& pair) { return pair.input == v && may_apply(graph, pair); });
}

/// The network of one moment. Source side: "is wanted after it" for a value, "runs again" for an op. A wanted
/// value whose op does not run again is kept: that arc costs its bytes. An op that runs again costs its
/// duration and wants its inputs.
class Moment {
 public:
  Moment(const Graph& graph, OpId at, OrderMode order)
      : graph_(graph), at_(at), side_(graph.num_ops(), Side::kNeither), wanted_(graph.num_values(), false) {
    order == OrderMode::kFixed ? split_by_order() : split_by_edges();
    find_wanted();
    build();
    most_cost_ = rerun_duration_;
  }

  /// From now on an op's cost is up to a thousandth more than its duration, of the later ones more. Alike
  /// layers then change sides one by one, those first whose reruns come last, when memory is free again.
  /// False where the numbers leave no room for that.
  bool skew() {
    constexpr std::int64_t kMost = std::int64_t{1} << 40;  // finer costs leave prices too coarse
    const std::int64_t one = kMost / std::max<std::int64_t>(1, rerun_duration_);
    if (one < 2) return false;
    for (Rerun& rerun : reruns_) {
      const Wide scaled = Wide(rerun.cost) * one;
      rerun.cost = static_cast<std::int64_t>(scaled + scaled * (rerun.op.index() + 1) / at_.index() / 1000);
    }
    most_cost_ = rerun_duration_ * one + rerun_duration_ * one / 1000;
    return true;
  }

  std::int64_t ticks() const { return flow_.ticks(); }
  void stop_with(Limits* limits) {
    constexpr std::int64_t kFreeTicks =
        200'000;  // a millisecond or two: small graphs have their bound always
    if (limits) flow_.set_stop([this, limits] { return flow_.ticks() > kFreeTicks && limits->reached(); });
  }

  struct Choice {
    Retention retention;
    std::int64_t cost = 0;   ///< of all reruns
    std::int64_t least = 0;  ///< cost x per_cost + bytes x per_byte of every choice is at least this
  };
  /// The cheapest choice at a price; nothing where the ticks ran out.
  std::optional<Choice> cheapest(Price price, std::int64_t most_ticks) {
    for (const Keep& keep : keeps_) flow_.set_capacity(keep.arc, keep.bytes * price.per_byte);
    for (const Rerun& rerun : reruns_) flow_.set_capacity(rerun.arc, rerun.cost * price.per_cost);
    for (const MaxFlow::Arc arc : needs_) flow_.set_capacity(arc, MaxFlow::kUnlimited);
    const MaxFlow::Amount least = flow_.solve(most_ticks);
    if (least < 0) return std::nullopt;
    Choice choice = keep_all();
    choice.least = least;
    Retention& retention = choice.retention;
    retention.held = Bytes();
    for (const Rerun& rerun : reruns_) {
      if (!flow_.on_source_side(rerun.node)) continue;
      retention.rerun[rerun.op] = true;
      retention.extra += graph_.duration[rerun.op];
      choice.cost += rerun.cost;
    }
    for (const Keep& keep : keeps_) {
      if (flow_.on_source_side(keep.from) && !flow_.on_source_side(keep.to))
        retention.held += Bytes(keep.bytes);
    }
    return choice;
  }

  Choice keep_all() const {
    return {{at_, IndexVector<OpId, bool>(graph_.num_ops(), false), Duration(), Bytes(wanted_bytes_)}, 0, 0};
  }
  /// No choice costs or holds more.
  std::int64_t most_cost() const { return std::max<std::int64_t>(1, most_cost_); }
  std::int64_t most_bytes() const { return std::max<std::int64_t>(1, keep_bytes_); }

 private:
  struct Keep {
    MaxFlow::Arc arc;
    MaxFlow::Node from, to;
    std::int64_t bytes;
  };
  struct Rerun {
    MaxFlow::Arc arc;
    MaxFlow::Node node;
    OpId op;
    std::int64_t cost;
  };

  enum class Side : std::uint8_t { kBefore, kNeither, kAfter };

  void split_by_order() {
    for (OpId op : graph_.ops())
      side_[op] = op < at_ ? Side::kBefore : op > at_ ? Side::kAfter : Side::kNeither;
  }
  void split_by_edges() {
    const auto mark = [&](OpId op, OpId neighbour, Side side) {
      if (neighbour == at_ || side_[neighbour] == side) side_[op] = side;
    };
    for (OpId op : IdRange<OpId>(at_.next(), OpId(graph_.ops().size()))) {
      for (OpId earlier : graph_.after[op]) mark(op, earlier, Side::kAfter);
      for (ValueId v : graph_.inputs[op]) {
        if (graph_.producer[v]) mark(op, graph_.producer[v], Side::kAfter);
      }
    }
    IndexVector<OpId, bool> above(graph_.num_ops(), false);
    above[at_] = true;
    for (OpId op = at_; op; op = op.prev()) {
      if (!above[op]) continue;
      if (op != at_) side_[op] = Side::kBefore;
      for (OpId earlier : graph_.after[op]) above[earlier] = true;
      for (ValueId v : graph_.inputs[op]) {
        if (graph_.producer[v]) above[graph_.producer[v]] = true;
      }
    }
  }

  bool before(OpId op) const { return side_[op] == Side::kBefore; }
  /// Made before the moment and not in memory at it anyway.
  bool droppable(ValueId v) const {
    const OpId maker = graph_.producer[v];
    return maker && before(maker) && may_be_lost(graph_, at_, v);
  }

  void find_wanted() {
    for (ValueId v : graph_.values()) {
      if (!droppable(v)) continue;
      const auto readers = graph_.readers[v];
      wanted_[v] = graph_.kept[v] || std::any_of(readers.begin(), readers.end(),
                                                 [&](OpId reader) { return side_[reader] == Side::kAfter; });
      if (wanted_[v]) wanted_bytes_ += bytes_beside(graph_, at_, v).count();
    }
  }

  void build() {
    // Backwards, so that what an op wants is known before its own inputs are looked at.
    IndexVector<ValueId, MaxFlow::Node> node(graph_.num_values(), -1);
    for (OpId op = at_.prev(); op; op = op.prev()) {
      if (!before(op)) continue;
      const MaxFlow::Node self = graph_.recomputable[op] ? add_rerun(op, node) : MaxFlow::kSink;
      bool of_use = false;
      for (ValueId v : graph_.outputs[op]) {
        if (!droppable(v)) continue;
        const MaxFlow::Node from = wanted_[v] ? MaxFlow::kSource : node[v];
        if (from < 0) continue;
        of_use = true;
        const std::int64_t bytes = bytes_beside(graph_, at_, v).count();
        keep_bytes_ += bytes;
        keeps_.push_back({flow_.add_arc(from, self), from, self, bytes});
      }
      if (self == MaxFlow::kSink || !of_use) continue;
      const std::int64_t cost = graph_.duration[op].count();
      reruns_.push_back({flow_.add_arc(self, MaxFlow::kSink), self, op, cost});
      rerun_duration_ += cost;
      for (ValueId v : graph_.inputs[op]) {
        if (!droppable(v) || wanted_[v]) continue;
        if (node[v] < 0) node[v] = flow_.add_node();
        needs_.push_back(flow_.add_arc(self, node[v]));
      }
    }
  }

  MaxFlow::Node add_rerun(OpId op, const IndexVector<ValueId, MaxFlow::Node>& node) {
    const auto outputs = graph_.outputs[op];
    const bool of_use =
        std::any_of(outputs.begin(), outputs.end(), [&](ValueId v) { return wanted_[v] || node[v] >= 0; });
    return of_use ? flow_.add_node() : MaxFlow::kSink;
  }

  const Graph& graph_;
  OpId at_;
  IndexVector<OpId, Side> side_;
  IndexVector<ValueId, bool> wanted_;  ///< read after the moment, or kept
  MaxFlow flow_;
  std::vector<Keep> keeps_;
  std::vector<Rerun> reruns_;
  std::vector<MaxFlow::Arc> needs_;
  std::int64_t wanted_bytes_ = 0, keep_bytes_ = 0, rerun_duration_ = 0, most_cost_ = 0;
};

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
  Hull(Moment& moment, Bytes room, std::int64_t most_ticks)
      : moment_(moment), room_(room), most_ticks_(most_ticks), beyond_(moment.keep_all()) {}

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
  static constexpr int kMostSecants = 60;

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
    for (int i = 0; i < kMostSecants; ++i) {
      const std::int64_t more = within_->cost - beyond_->cost;
      const Bytes less = beyond_->retention.held - within_->retention.held;
      if (more <= 0 || less <= Bytes() || !look(price_of(more, less.count(), moment_))) return;
    }
  }

  Moment& moment_;
  Bytes room_;
  std::int64_t most_ticks_;
  std::int64_t bound_ = 0;
  std::optional<Moment::Choice> within_, beyond_;
};

}  // namespace

RetentionResult solve_retention(const Graph& graph, OpId at, Bytes budget, OrderMode order,
                                std::int64_t most_ticks, Limits* limits) {
  RetentionResult result;
  Moment moment(graph, at, order);
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

Duration retention_bound(const Graph& graph, OpId at, Bytes budget, OrderMode order, std::int64_t most_ticks,
                         Limits* limits) {
  Moment moment(graph, at, order);
  moment.stop_with(limits);
  Hull hull(moment, budget - need_of(graph, at), most_ticks);
  hull.run();
  return Duration(hull.bound());
}

Plan plan_of(const Graph& graph, const Retention& choice) {
  Plan plan;
  for (OpId op : IdRange<OpId>(OpId(0), choice.at)) plan.steps.push_back(op);
  const auto lost = [&](ValueId v) {
    const OpId maker = graph.producer[v];
    return maker && maker < choice.at && choice.rerun[maker] && may_be_lost(graph, choice.at, v);
  };
  IndexVector<OpId, bool> back(graph.num_ops(), false);
  std::vector<std::pair<OpId, bool>> pending;  // an op, and whether its inputs have been seen to
  const auto bring = [&](ValueId wanted) {
    if (!lost(wanted) || back[graph.producer[wanted]]) return;
    pending.emplace_back(graph.producer[wanted], false);
    while (!pending.empty()) {
      auto& [op, ready] = pending.back();
      const OpId run = op;
      if (back[run] || ready) {
        if (!back[run]) plan.steps.push_back(run);
        back[run] = true;
        pending.pop_back();
        continue;
      }
      ready = true;
      for (ValueId v : graph.inputs[run]) {
        if (lost(v) && !back[graph.producer[v]]) pending.emplace_back(graph.producer[v], false);
      }
    }
  };
  plan.steps.push_back(choice.at);
  for (OpId op : IdRange<OpId>(choice.at.next(), OpId(graph.ops().size()))) {
    for (ValueId v : graph.inputs[op]) bring(v);
    plan.steps.push_back(op);
  }
  for (ValueId v : graph.graph_outputs) bring(v);
  return plan;
}

}  // namespace remat
