#include "differential/exact.h"

#include <algorithm>
#include <map>
#include <queue>
#include <tuple>

namespace exact {
namespace {

bool holds(const std::vector<int>& list, int item) {
  return std::find(list.begin(), list.end(), item) != list.end();
}

/// Steps at which an instance is in memory, both ends included.
struct Instance {
  int value;
  std::size_t first, last;
  bool is_kept = false;
};

std::vector<Instance> instances_of(const Graph& graph, const std::vector<int>& steps) {
  std::vector<Instance> all;
  std::map<int, std::size_t> newest;
  for (std::size_t s = 0; s < steps.size(); ++s) {
    const Op& op = graph.ops[static_cast<std::size_t>(steps[s])];
    for (int v : op.inputs) {
      if (newest.contains(v)) all[newest[v]].last = s;
    }
    for (int v : op.outputs) {
      newest[v] = all.size();
      all.push_back({v, s, s, false});
    }
  }
  for (int v : graph.kept) {
    if (newest.contains(v)) all[newest[v]].last = steps.size() - 1, all[newest[v]].is_kept = true;
  }
  return all;
}

/// The bytes that the op's step saves if it is the last reader of the value.
Sum written_over(const Graph& graph, const Op& op, int value) {
  for (const auto& [input, output] : op.over) {
    if (input == value) {
      return std::min(graph.bytes[static_cast<std::size_t>(input)],
                      graph.bytes[static_cast<std::size_t>(output)]);
    }
  }
  return 0;
}

Sum resident_bytes(const Graph& graph) {
  Sum sum = 0;
  for (int v : graph.inputs) sum += graph.bytes[static_cast<std::size_t>(v)];
  return sum;
}

/// Which values are held (one bit for each value that an op makes) and which ops have run.
struct State {
  unsigned held = 0, ran = 0;
  friend auto operator<=>(const State&, const State&) = default;
};

/// Every plan is a walk: run an op whose inputs are in memory, or drop a value. Walks are continued by rising
/// peak and, at equal peaks, rising duration, so that the first walk that reaches a state has the least peak,
/// and a later one is worth continuing only where it is faster.
class Walks {
 public:
  Walks(const Graph& graph, bool fixed_order) : graph_(graph), resident_(resident_bytes(graph)) {
    for (std::size_t v = 0; v < graph.bytes.size(); ++v) {
      if (holds(graph.inputs, static_cast<int>(v))) continue;
      bit_[static_cast<int>(v)] = 1u << bytes_.size();
      bytes_.push_back(graph.bytes[v]);
    }
    kept_ = bits(graph.kept);
    fastest_.assign(std::size_t{1} << (graph.ops.size() + bytes_.size()), -1);
    for (std::size_t i = 0; i < graph.ops.size(); ++i) {
      const Op& op = graph.ops[i];
      reads_.push_back(bits(op.inputs));
      makes_.push_back(bits(op.outputs));
      unsigned before = fixed_order ? (1u << i) - 1 : 0;
      for (int b : op.after) before |= 1u << b;
      before_.push_back(before);
    }
  }

  std::vector<Cost> run() {
    std::vector<Cost> found;
    Sum once = 0;
    for (const Op& op : graph_.ops) once += op.duration;
    const unsigned all_ran = (1u << graph_.ops.size()) - 1;
    push({resident_, 0}, {});
    while (found.empty() || found.back().duration > once) {
      const auto [peak, duration, state] = queue_.top();
      queue_.pop();
      Sum& known = fastest_[state.ran << bytes_.size() | state.held];
      if (known >= 0 && known <= duration) continue;
      known = duration;
      if (state.ran != all_ran || (state.held & kept_) != kept_) {
        extend({peak, duration}, state);
      } else if (found.empty() || duration < found.back().duration) {
        found.push_back({peak, duration});
      }
    }
    return found;
  }

 private:
  using Entry = std::tuple<Sum, Sum, State>;

  void push(Cost cost, State state) { queue_.emplace(cost.peak, cost.duration, state); }

  void extend(Cost cost, State state) {
    for (unsigned bit = 1; bit < 1u << bytes_.size(); bit <<= 1) {
      if (state.held & bit) push(cost, {state.held & ~bit, state.ran});
    }
    for (std::size_t i = 0; i < graph_.ops.size(); ++i) {
      const Op& op = graph_.ops[i];
      const bool again = state.ran >> i & 1;
      if ((state.held & reads_[i]) != reads_[i]) continue;
      if (again ? !op.may_run_again : (state.ran & before_[i]) != before_[i]) continue;
      const State next{state.held | makes_[i], state.ran | 1u << i};
      const Sum memory = resident_ + held_bytes(next.held) + op.workspace;
      give_up({cost.peak, cost.duration + op.duration}, next, memory, op, 0);
    }
  }

  /// An op may or may not give up each input that it may write over.
  void give_up(Cost cost, State next, Sum memory, const Op& op, std::size_t pair) {
    if (pair == op.over.size()) return push({std::max(cost.peak, memory), cost.duration}, next);
    give_up(cost, next, memory, op, pair + 1);
    const auto [input, output] = op.over[pair];
    next.held &= ~bit_.at(input);
    memory -= std::min(graph_.bytes[static_cast<std::size_t>(input)],
                       graph_.bytes[static_cast<std::size_t>(output)]);
    give_up(cost, next, memory, op, pair + 1);
  }

  unsigned bits(const std::vector<int>& values) const {
    unsigned set = 0;
    for (int v : values) {
      if (const auto at = bit_.find(v); at != bit_.end()) set |= at->second;
    }
    return set;
  }
  Sum held_bytes(unsigned held) const {
    Sum sum = 0;
    for (std::size_t b = 0; b < bytes_.size(); ++b) {
      if (held >> b & 1) sum += bytes_[b];
    }
    return sum;
  }

  const Graph& graph_;
  Sum resident_;
  std::map<int, unsigned> bit_;
  std::vector<Sum> bytes_;
  std::vector<unsigned> reads_, makes_, before_;
  unsigned kept_ = 0;
  std::vector<Sum> fastest_;  ///< duration of the last walk through each state, -1 before the first
  std::priority_queue<Entry, std::vector<Entry>, std::greater<>> queue_;
};

}  // namespace

std::optional<std::string> broken_step(const Graph& graph, const std::vector<int>& steps, std::size_t s) {
  const auto earlier = std::vector<int>(steps.begin(), steps.begin() + static_cast<std::ptrdiff_t>(s));
  const std::string place = "step " + std::to_string(s) + ": ";
  if (steps[s] < 0 || steps[s] >= static_cast<int>(graph.ops.size())) return place + "no such op";
  const Op& op = graph.ops[static_cast<std::size_t>(steps[s])];
  for (int v : op.inputs) {
    const bool is_ready = holds(graph.inputs, v) || std::any_of(earlier.begin(), earlier.end(), [&](int e) {
                            return holds(graph.ops[static_cast<std::size_t>(e)].outputs, v);
                          });
    if (!is_ready) return place + "value " + std::to_string(v) + " has not been made";
  }
  for (int before : op.after) {
    if (!holds(earlier, before)) return place + "op " + std::to_string(before) + " has not run";
  }
  if (!op.may_run_again && holds(earlier, steps[s])) return place + "the op runs twice";
  return std::nullopt;
}

std::string to_string(Sum sum) {
  std::string digits;
  const bool is_negative = sum < 0;
  if (is_negative) sum = -sum;
  do {
    digits.insert(digits.begin(), static_cast<char>('0' + static_cast<int>(sum % 10)));
    sum /= 10;
  } while (sum > 0);
  if (is_negative) digits.insert(digits.begin(), '-');
  return digits;
}

std::optional<std::string> broken_rule(const Graph& graph, const std::vector<int>& steps, bool fixed_order) {
  for (std::size_t s = 0; s < steps.size(); ++s) {
    if (auto broken = broken_step(graph, steps, s)) return broken;
  }
  std::vector<int> first_runs;
  for (int op : steps) {
    if (!holds(first_runs, op)) first_runs.push_back(op);
  }
  if (first_runs.size() != graph.ops.size()) return "an op never runs";
  if (fixed_order && !std::is_sorted(first_runs.begin(), first_runs.end())) return "first runs out of order";
  return std::nullopt;
}

Cost cost_of(const Graph& graph, const std::vector<int>& steps) {
  const std::vector<Instance> instances = instances_of(graph, steps);
  Cost cost;
  for (std::size_t s = 0; s < steps.size(); ++s) {
    const Op& op = graph.ops[static_cast<std::size_t>(steps[s])];
    Sum memory = resident_bytes(graph) + op.workspace;
    for (const Instance& one : instances) {
      if (one.first <= s && s <= one.last) memory += graph.bytes[static_cast<std::size_t>(one.value)];
      if (one.first < s && one.last == s && !one.is_kept) memory -= written_over(graph, op, one.value);
    }
    cost.peak = std::max(cost.peak, memory);
    cost.duration += op.duration;
  }
  return cost;
}

std::vector<Cost> trade_off(const Graph& graph, bool fixed_order) { return Walks(graph, fixed_order).run(); }

}  // namespace exact
