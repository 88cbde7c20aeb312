#include "bounds/last_run.h"

#include <algorithm>
#include <vector>

#include "base/numbers.h"
#include "graph/max_flow.h"
#include "model/step.h"

namespace remat {
namespace {

class LastRun {
 public:
  LastRun(const Graph& graph, OrderMode order, std::int64_t most_ticks)
      : graph_(graph), order_(order), most_ticks_(most_ticks), chosen_(graph.num_ops(), false) {
    build();
  }

  /// The best bound above `known` within the ticks, by bisection over the value to prove.
  PeakBound best(PeakBound known) {
    Bytes high;  // no set proves more
    for (ValueId v : graph_.graph_outputs) high += graph_.is_graph_input(v) ? Bytes() : graph_.bytes[v];
    Bytes dearest;
    for (OpId op : graph_.ops()) dearest = std::max(dearest, need_of(graph_, op));
    high += dearest;
    while (known.peak < high && !is_spent()) {
      const Bytes aim = high - Bytes((high - known.peak).count() / 2);
      const PeakBound proved = largest_set(aim);
      if (proved.peak >= aim) {
        known = proved;
      } else {
        high = aim - Bytes(1);
      }
      if (high - known.peak < Bytes(1 + high.count() / kPrecision)) break;
    }
    return known;
  }

 private:
  static constexpr std::int64_t kPrecision = 4096;

  bool is_spent() const { return flow_.ticks() >= most_ticks_; }

  void build() {
    through_.resize(graph_.num_values());
    is_source_.resize(graph_.num_ops());
    IndexVector<OpId, MaxFlow::Node> node(graph_.num_ops());
    for (OpId op : graph_.ops()) {
      node[op] = flow_.add_node();
      is_source_[op] = flow_.add_arc(MaxFlow::kSource, node[op]);
    }
    for (ValueId v : graph_.values()) {
      if (graph_.is_graph_input(v)) continue;
      const MaxFlow::Node in = flow_.add_node(), out = flow_.add_node();
      through_[v] = flow_.add_arc(in, out);
      flow_.set_capacity(through_[v], graph_.bytes[v].count());
      unlimited(node[graph_.producer[v]], in);
      for (OpId reader : graph_.readers[v]) unlimited(out, node[reader]);
      if (graph_.kept[v]) unlimited(out, MaxFlow::kSink);
    }
  }

  void unlimited(MaxFlow::Node from, MaxFlow::Node to) {
    flow_.set_capacity(flow_.add_arc(from, to), MaxFlow::kUnlimited);
  }

  /// An op of the set, or one that may run once only and has run when the last of the set does.
  void set_sources() {
    IndexVector<OpId, bool> before(graph_.num_ops(), false);
    OpId last;
    for (OpId op : graph_.ops()) {
      if (chosen_[op]) last = op;
    }
    for (std::size_t i = graph_.num_ops(); i-- > 0;) {
      const OpId op(i);
      if (order_ == OrderMode::kFixed) before[op] = last && op <= last;
      if (!before[op] && !chosen_[op]) continue;
      for (ValueId v : graph_.inputs[op]) {
        if (!graph_.is_graph_input(v)) before[graph_.producer[v]] = true;
      }
    }
    for (OpId op : graph_.ops()) {
      const bool is_source = chosen_[op] || (before[op] && !graph_.recomputable[op]);
      flow_.set_capacity(is_source_[op], is_source ? MaxFlow::kUnlimited : 0);
    }
  }

  template <class Each>
  void for_own_values(OpId op, const Each& each) const {
    for (ValueId v : graph_.outputs[op]) each(v);
    for (ValueId v : graph_.inputs[op]) {
      if (!graph_.is_graph_input(v)) each(v);
    }
  }

  /// The cut beside `op` in bytes, exactly: its own values are in memory already. Negative: out of ticks.
  std::int64_t cut_beside(OpId op) {
    for_own_values(op, [&](ValueId v) { flow_.set_capacity(through_[v], 0); });
    const std::int64_t cut = solve();
    for_own_values(op, [&](ValueId v) { flow_.set_capacity(through_[v], graph_.bytes[v].count()); });
    return cut;
  }

  std::int64_t solve() { return flow_.solve(std::max<std::int64_t>(0, most_ticks_ - flow_.ticks())); }

  /// The largest set in which each op needs at least `aim` if it is the last: repeatedly removes ops that
  /// need less, with their outputs. The bound is the least need in the set.
  PeakBound largest_set(Bytes aim) {
    const PeakBound nothing{"last_run", Bytes(), OpId::none()};
    std::vector<OpId> set;
    for (OpId op : graph_.ops()) set.push_back(op);
    for (OpId op : set) chosen_[op] = true;
    while (!set.empty()) {
      set_sources();
      const std::int64_t all = solve();
      if (all < 0) break;
      PeakBound least{"last_run", Bytes(kMaxCount), OpId::none()};
      std::vector<OpId> doubtful;
      std::size_t left = 0;
      for (OpId op : set) {
        const Bytes needs = need_of(graph_, op);
        std::int64_t beside = all;  // flow through its own values is all that may be lost
        for_own_values(op, [&](ValueId v) { beside -= flow_.flow(through_[v]); });
        const Bytes has = needs + Bytes(std::max<std::int64_t>(0, beside));
        if (needs + Bytes(all) < aim) {
          chosen_[op] = false;
          continue;
        }
        set[left++] = op;
        if (has < aim) {
          doubtful.push_back(op);
        } else if (has < least.peak) {
          least = {"last_run", has, op};
        }
      }
      const bool shrunk = left < set.size();
      set.resize(left);
      if (shrunk || set.empty()) continue;
      for (OpId op : doubtful) {
        const std::int64_t beside = cut_beside(op);
        if (beside < 0) return reset(set, nothing);
        const Bytes has = need_of(graph_, op) + Bytes(beside);
        if (has < aim) {
          chosen_[op] = false;
        } else if (has < least.peak) {
          least = {"last_run", has, op};
        }
      }
      std::erase_if(set, [&](OpId op) { return !chosen_[op]; });
      if (set.size() == left) return reset(set, least);
    }
    return reset(set, nothing);
  }

  PeakBound reset(const std::vector<OpId>& set, const PeakBound& bound) {
    for (OpId op : set) chosen_[op] = false;
    return bound;
  }

  const Graph& graph_;
  const OrderMode order_;
  const std::int64_t most_ticks_;
  MaxFlow flow_;
  IndexVector<ValueId, MaxFlow::Arc> through_;  ///< from a value to its readers: cut where it is in memory
  IndexVector<OpId, MaxFlow::Arc> is_source_;
  IndexVector<OpId, bool> chosen_;
};

}  // namespace

PeakBound last_run_bound(const Graph& graph, OrderMode order, const PeakBound& known,
                         std::int64_t most_ticks) {
  // Capacities are summed.
  if (graph.graph_outputs.empty() || graph.ops().size() == 0) return known;
  Wide all = 0;
  for (ValueId v : graph.values()) all += graph.bytes[v].count();
  if (all >= Wide(kMaxCount)) return known;
  return LastRun(graph, order, most_ticks).best(known);
}

}  // namespace remat
