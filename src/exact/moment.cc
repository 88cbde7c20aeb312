#include "exact/moment.h"

#include <algorithm>
#include <utility>

#include "base/numbers.h"
#include "model/step.h"

namespace remat {

bool may_be_lost(const Graph& graph, OpId at, ValueId v) {
  const auto inputs = graph.inputs[at];
  if (!std::binary_search(inputs.begin(), inputs.end(), v)) return true;
  return std::ranges::any_of(reuses(graph, at),
                             [&](const Reuse& reuse) { return reuse.input == v && may_end(graph, v); });
}

Moment::Moment(const Graph& graph, OpId at, OrderMode order, const FetchPrices* fetch)
    : graph_(graph),
      at_(at),
      fetch_(fetch),
      order_(order),
      side_(graph.num_ops(), Side::kNeither),
      state_(graph.num_values(), State::kStays) {
  order == OrderMode::kFixed ? split_by_order() : split_by_edges();
  find_states();
  build();
  most_cost_ = rerun_duration_ + fetch_cost_;
}

bool Moment::skew() {
  constexpr std::int64_t kMost = std::int64_t{1} << 40;  // larger costs leave prices too coarse
  const std::int64_t one = kMost / std::max<std::int64_t>(1, rerun_duration_ + fetch_cost_);
  if (one < 2) return false;
  for (Rerun& rerun : reruns_) {
    const Wide scaled = Wide(rerun.cost) * one;
    rerun.cost = static_cast<std::int64_t>(scaled + scaled * (rerun.op.index() + 1) / at_.index() / 1000);
  }
  for (Keep& keep : keeps_) {
    if (keep.fetch > 0) keep.fetch *= one;
  }
  most_cost_ = (rerun_duration_ + fetch_cost_) * one + rerun_duration_ * one / 1000;
  return true;
}

void Moment::stop_with(Limits* limits) {
  // a millisecond or two, so that small graphs always get their bound
  constexpr std::int64_t kFreeTicks = 200'000;
  if (limits) flow_.set_stop([this, limits] { return flow_.ticks() > kFreeTicks && limits->reached(); });
}

std::optional<Moment::Choice> Moment::cheapest(Price price, std::int64_t most_ticks) {
  for (const Keep& keep : keeps_) {
    flow_.set_capacity(keep.arc,
                       keep.is_fetched(price) ? keep.fetch * price.per_cost : keep.bytes * price.per_byte);
  }
  for (const Rerun& rerun : reruns_) flow_.set_capacity(rerun.arc, rerun.cost * price.per_cost);
  for (const MaxFlow::Arc arc : needs_) flow_.set_capacity(arc, MaxFlow::kUnlimited);
  const MaxFlow::Amount least = flow_.solve(most_ticks);
  if (least < 0) return std::nullopt;
  Choice choice = keep_all();
  choice.least = least;
  Retention& retention = choice.retention;
  retention.held = Bytes();
  if (fetch_) retention.fetched.assign(graph_.num_values(), false);
  for (const Rerun& rerun : reruns_) {
    if (!flow_.on_source_side(rerun.node)) continue;
    retention.rerun[rerun.op] = true;
    retention.extra += graph_.duration[rerun.op];
    choice.cost += rerun.cost;
  }
  for (const Keep& keep : keeps_) {
    if (!flow_.on_source_side(keep.from) || flow_.on_source_side(keep.to)) continue;
    if (!keep.is_fetched(price)) {
      retention.held += Bytes(keep.bytes);
      continue;
    }
    retention.fetched[keep.value] = true;
    retention.extra += Duration((*fetch_)[keep.value]);
    choice.cost += keep.fetch;
  }
  return choice;
}

Moment::Choice Moment::keep_all() const {
  return {
      {at_, IndexVector<OpId, bool>(graph_.num_ops(), false), Duration(), Bytes(wanted_bytes_), {}}, 0, 0};
}

Moment::Choice Moment::priced(Choice choice) const {
  choice.cost = 0;
  for (const Rerun& rerun : reruns_) {
    if (choice.retention.rerun[rerun.op]) choice.cost += rerun.cost;
  }
  for (const Keep& keep : keeps_) {
    if (choice.retention.fetches(keep.value)) choice.cost += keep.fetch;
  }
  return choice;
}

std::optional<std::int64_t> Moment::least_sum(std::span<const std::int64_t> per_rerun,
                                              std::span<const std::int64_t> per_keep,
                                              std::int64_t most_ticks) {
  for (std::size_t i = 0; i < keeps_.size(); ++i) flow_.set_capacity(keeps_[i].arc, per_keep[i]);
  for (std::size_t i = 0; i < reruns_.size(); ++i) flow_.set_capacity(reruns_[i].arc, per_rerun[i]);
  for (const MaxFlow::Arc arc : needs_) flow_.set_capacity(arc, MaxFlow::kUnlimited);
  const MaxFlow::Amount least = flow_.solve(most_ticks);
  return least < 0 ? std::nullopt : std::optional(least);
}

void Moment::split_by_order() {
  for (OpId op : graph_.ops())
    side_[op] = op < at_ ? Side::kBefore : op > at_ ? Side::kAfter : Side::kNeither;
}

void Moment::split_by_edges() {
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

/// Beside the need of the moment's op.
Bytes Moment::beside(ValueId v) const {
  return has_reuses(graph_, at_) ? bytes_beside(graph_, at_, v) : graph_.bytes[v];
}

bool Moment::is_read_later(ValueId v) const {
  const auto readers = graph_.readers[v];
  if (order_ == OrderMode::kFixed) return !readers.empty() && readers.back() > at_;
  return std::ranges::any_of(readers, [&](OpId reader) { return side_[reader] == Side::kAfter; });
}

void Moment::find_states() {
  for (OpId op : IdRange<OpId>(OpId(0), at_)) {
    if (!before(op)) continue;
    for (ValueId v : graph_.outputs[op])
      state_[v] = graph_.kept[v] || is_read_later(v) ? State::kWanted : State::kDroppable;
  }
  for (ValueId v : graph_.inputs[at_]) {
    if (!may_be_lost(graph_, at_, v)) state_[v] = State::kStays;
  }
}

void Moment::build() {
  constexpr MaxFlow::Node kNone = -1;
  // By value that is not wanted: the node of the first rerun that needs it, or its own, of the second.
  IndexVector<ValueId, MaxFlow::Node> node(graph_.num_values(), kNone);
  IndexVector<ValueId, bool> is_own(graph_.num_values(), false);
  const auto needed_by = [&](ValueId v, MaxFlow::Node reader) {
    if (node[v] == kNone) {
      node[v] = reader;
      return;
    }
    if (!is_own[v]) {
      const MaxFlow::Node first = std::exchange(node[v], flow_.add_node());
      needs_.push_back(flow_.add_arc(first, node[v]));
      is_own[v] = true;
    }
    needs_.push_back(flow_.add_arc(reader, node[v]));
  };
  // Backwards, so that the needs of an op are known before those of its inputs.
  for (OpId op = at_.prev(); op; op = op.prev()) {
    if (!before(op)) continue;
    MaxFlow::Node self = kNone;
    for (ValueId v : graph_.outputs[op]) {
      if (!is_droppable(v)) continue;
      const MaxFlow::Node from = is_wanted(v) ? MaxFlow::kSource : node[v];
      if (from == kNone) continue;
      if (self == kNone) self = graph_.recomputable[op] ? flow_.add_node() : MaxFlow::kSink;
      const std::int64_t bytes = beside(v).count();
      if (is_wanted(v)) wanted_bytes_ += bytes;
      keep_bytes_ += bytes;
      const std::int64_t fetch = fetch_ && (*fetch_)[v] < kMaxCount ? (*fetch_)[v] : -1;
      if (fetch > 0) fetch_cost_ += fetch;
      keeps_.push_back({flow_.add_arc(from, self), from, self, bytes, v, fetch});
    }
    if (self == kNone || self == MaxFlow::kSink) continue;
    const std::int64_t cost = graph_.duration[op].count();
    reruns_.push_back({flow_.add_arc(self, MaxFlow::kSink), self, op, cost});
    rerun_duration_ += cost;
    for (ValueId v : graph_.inputs[op]) {
      if (is_droppable(v) && !is_wanted(v)) needed_by(v, self);
    }
  }
}

}  // namespace remat
