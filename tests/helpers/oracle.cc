#include "helpers/oracle.h"

#include <algorithm>
#include <bit>
#include <cstdlib>
#include <queue>
#include <unordered_map>

namespace remat::testing {
namespace {

/// Bit sets over the values that ops make and over the ops.
struct State {
  std::uint32_t in_memory, has_run;
};

class Space {
 public:
  Space(const Graph& graph, OrderMode order) : graph_(graph), order_(order), bit_(graph.num_values(), -1) {
    for (ValueId v : graph.values()) {
      if (!graph.is_graph_input(v)) {
        bit_[v] = static_cast<int>(bytes_.size());
        bytes_.push_back(graph.bytes[v]);
      }
    }
    // A bit for the state of each op that draws random numbers: held from its first run if it is to run
    // again.
    for (OpId op : graph.ops()) {
      state_bit_.push_back(graph.generator_state[op] > Bytes() ? static_cast<int>(bytes_.size()) : -1);
      if (state_bit_[op] >= 0) bytes_.push_back(graph.generator_state[op]);
    }
    if (graph.num_ops() > 7 || bytes_.size() > 16) std::abort();
    for (OpId op : graph.ops()) {
      needs_.push_back(mask(graph.inputs[op]));
      makes_.push_back(mask(graph.outputs[op]));
      std::uint32_t before = 0;
      for (OpId b : graph.after[op]) before |= 1u << b.index();
      if (order == OrderMode::kFixed) before |= (1u << op.index()) - 1;
      after_.push_back(before);
    }
    kept_ = mask(graph.graph_outputs);
  }

  State start() const { return {0, 0}; }
  bool is_end(State s) const { return s.has_run == all_ops() && (s.in_memory & kept_) == kept_; }

  /// Calls visit(next state, memory of the step or nothing for a drop, duration).
  template <class Visit>
  void each_next(State s, Visit&& visit) const {
    for (std::size_t v = 0; v < bytes_.size(); ++v) {
      if (s.in_memory >> v & 1) visit(State{s.in_memory & ~(1u << v), s.has_run}, Bytes(), Duration());
    }
    for (OpId op : graph_.ops()) {
      const auto i = static_cast<std::size_t>(op.index());
      const bool again = s.has_run >> i & 1;
      if ((s.in_memory & needs_[i]) != needs_[i] || (again && !graph_.recomputable[op])) continue;
      if (!again && (s.has_run & after_[i]) != after_[i]) continue;
      if (state_bit_[op] < 0) {
        run(s, op, s.in_memory | makes_[i], Bytes(), visit);
      } else if (const std::uint32_t state = 1u << state_bit_[op]; !again) {
        run(s, op, s.in_memory | makes_[i], Bytes(), visit);
        run(s, op, s.in_memory | makes_[i] | state, Bytes(), visit);
      } else if (s.in_memory & state) {
        run(s, op, s.in_memory | makes_[i], graph_.generator_state[op], visit);
      }
    }
  }

  std::uint64_t key(State s) const { return std::uint64_t{s.has_run} << 32 | s.in_memory; }

 private:
  template <class Visit>
  void run(State s, OpId op, std::uint32_t memory, Bytes more, Visit&& visit) const {
    // Every choice of inputs that are given up for outputs.
    const auto pairs = graph_.over[op];
    for (std::uint32_t chosen = 0; chosen < 1u << pairs.size(); ++chosen) {
      std::uint32_t left = memory;
      Bytes needs = amount(memory) + graph_.workspace[op] + more;
      for (std::size_t k = 0; k < pairs.size(); ++k) {
        if (!(chosen >> k & 1)) continue;
        left &= ~(1u << bit_[pairs[k].input]);
        needs -= std::min(graph_.bytes[pairs[k].input], graph_.bytes[pairs[k].output]);
      }
      visit(State{left, s.has_run | 1u << op.index()}, needs, graph_.duration[op]);
    }
  }
  template <class Row>
  std::uint32_t mask(const Row& row) const {
    std::uint32_t bits = 0;
    for (ValueId v : row) {
      if (bit_[v] >= 0) bits |= 1u << bit_[v];
    }
    return bits;
  }
  Bytes amount(std::uint32_t memory) const {
    Bytes sum = graph_.resident;
    for (; memory; memory &= memory - 1) sum += bytes_[static_cast<std::size_t>(std::countr_zero(memory))];
    return sum;
  }
  std::uint32_t all_ops() const { return (1u << graph_.num_ops()) - 1; }

  const Graph& graph_;
  OrderMode order_;
  IndexVector<ValueId, int> bit_;
  IndexVector<OpId, int> state_bit_;
  std::vector<Bytes> bytes_;
  std::vector<std::uint32_t> needs_, makes_, after_;
  std::uint32_t kept_ = 0;
};

/// Best-first search; `extend` folds a step's memory and duration into the cost so far, or refuses it.
template <class Extend>
std::optional<std::int64_t> search(const Space& space, std::int64_t initial, Extend&& extend) {
  using Entry = std::pair<std::int64_t, std::uint64_t>;
  std::priority_queue<Entry, std::vector<Entry>, std::greater<>> queue;
  std::unordered_map<std::uint64_t, std::int64_t> best;
  queue.emplace(initial, space.key(space.start()));
  best[space.key(space.start())] = initial;
  while (!queue.empty()) {
    const auto [cost, key] = queue.top();
    queue.pop();
    if (best[key] < cost) continue;
    const State state{static_cast<std::uint32_t>(key), static_cast<std::uint32_t>(key >> 32)};
    if (space.is_end(state)) return cost;
    space.each_next(state, [&](State next, Bytes memory, Duration duration) {
      const std::optional<std::int64_t> extended = extend(cost, memory, duration);
      if (!extended) return;
      const auto [at, is_new] = best.try_emplace(space.key(next), *extended);
      if (!is_new && at->second <= *extended) return;
      at->second = *extended;
      queue.emplace(*extended, space.key(next));
    });
  }
  return std::nullopt;
}

}  // namespace

Bytes oracle_min_peak(const Graph& graph, OrderMode order) {
  const Space space(graph, order);
  return Bytes(*search(space, graph.resident.count(), [](std::int64_t peak, Bytes memory, Duration) {
    return std::optional(std::max(peak, memory.count()));
  }));
}

std::optional<Duration> oracle_min_duration(const Graph& graph, OrderMode order, Bytes budget) {
  const Space space(graph, order);
  const auto duration =
      search(space, 0, [&](std::int64_t sum, Bytes memory, Duration d) -> std::optional<std::int64_t> {
        if (memory > budget) return std::nullopt;
        return sum + d.count();
      });
  return duration ? std::optional(Duration(*duration)) : std::nullopt;
}

}  // namespace remat::testing
