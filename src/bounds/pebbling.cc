#include "bounds/pebbling.h"

#include <algorithm>
#include <set>

#include "base/sorted.h"
#include "model/step.h"

namespace remat {

Pebbling::Pebbling(const Graph& graph, OrderMode order) : graph_(graph), order_(order) {}

namespace {

bool holds(const std::vector<ValueId>& sorted, ValueId v) {
  return std::binary_search(sorted.begin(), sorted.end(), v);
}

Bytes total(const Graph& graph, const std::vector<ValueId>& values) {
  Bytes sum;
  for (ValueId v : values) sum += graph.bytes[v];
  return sum;
}

}  // namespace

Bytes Pebbling::need(OpId op, const std::vector<ValueId>& alive) const {
  Bytes sum = graph_.resident + momentary(graph_, op) + total(graph_, alive);
  for (ValueId v : graph_.outputs[op]) {
    if (!holds(alive, v)) sum += graph_.bytes[v];
  }
  for (ValueId v : graph_.inputs[op]) {
    if (!graph_.is_graph_input(v) && !holds(alive, v)) sum += graph_.bytes[v];
  }
  // Values that stay in memory after the step are not written over.
  for (const Reuse& reuse : reuses(graph_, op)) {
    if (!holds(alive, reuse.input)) sum -= reuse.bytes;
  }
  return sum;
}

/// An op that runs only once made its values before everything that needs it ran for the first time.
bool Pebbling::can_be_last(OpId op, const State& state) const {
  if (graph_.recomputable[op]) return true;
  for (ValueId v : state) {
    const OpId maker = graph_.producer[v];
    if (maker <= op) continue;
    if (order_ == OrderMode::kFixed) return false;
    for (ValueId u : graph_.inputs[maker]) {
      if (graph_.producer[u] == op) return false;
    }
  }
  return true;
}

/// Successors that cost at most the threshold, the one with the fewest live bytes last. False if the units
/// ran out. A successor that only shrinks its state replaces all others: nothing is lost by taking it.
bool Pebbling::expand(const State& state, Bytes threshold, Bytes& cheapest_refused,
                      std::vector<Successor>& out, std::int64_t& units) const {
  out.clear();
  std::vector<OpId> makers;
  for (ValueId v : state) makers.push_back(graph_.producer[v]);
  sort_unique(makers);
  for (OpId op : makers) {
    const auto inputs = graph_.inputs[op];
    units -= static_cast<std::int64_t>(state.size() + inputs.size() + graph_.outputs[op].size());
    if (units <= 0) return false;
    if (!can_be_last(op, state)) continue;
    const Bytes cost = need(op, state);
    if (cost > threshold) {
      cheapest_refused = std::min(cheapest_refused, cost);
      continue;
    }
    Successor next;
    for (ValueId v : state) {
      if (graph_.producer[v] != op) next.state.push_back(v);
    }
    for (ValueId v : inputs) {
      if (!graph_.is_graph_input(v)) next.state.push_back(v);
    }
    sort_unique(next.state);
    next.rest = total(graph_, next.state);
    const bool shrinks = std::includes(state.begin(), state.end(), next.state.begin(), next.state.end());
    if (shrinks) out.clear();
    out.push_back(std::move(next));
    if (shrinks) return true;
  }
  std::sort(out.begin(), out.end());
  return true;
}

Pebbling::Outcome Pebbling::search(const State& start, Bytes threshold, Bytes& cheapest_refused,
                                   std::int64_t& units) {
  std::set<State> seen{start};
  std::vector<State> open{start};
  std::vector<Successor> next;
  while (!open.empty()) {
    const State state = std::move(open.back());
    open.pop_back();
    if (state.empty()) return Outcome::kReachesEmpty;
    if (!expand(state, threshold, cheapest_refused, next, units)) return Outcome::kGaveUp;
    for (Successor& one : next) {
      if (seen.insert(one.state).second) open.push_back(std::move(one.state));
    }
  }
  return Outcome::kExhausted;
}

Bytes Pebbling::raise(const std::vector<ValueId>& alive, Bytes known, std::int64_t& units) {
  while (units > 0) {
    Bytes cheapest_refused(kMaxCount);
    if (search(alive, known, cheapest_refused, units) != Outcome::kExhausted) break;
    if (cheapest_refused.count() == kMaxCount) break;
    known = cheapest_refused;
  }
  return known;
}

}  // namespace remat
