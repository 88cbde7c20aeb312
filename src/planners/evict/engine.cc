#include "planners/evict/engine.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <tuple>

#include "base/numbers.h"
#include "model/step.h"
#include "remat/random.h"

namespace remat::evict {
namespace {

/// Exact powers only: they are the same on every machine.
double raised(double x, Policy::Power power) {
  switch (power) {
    case Policy::Power::kZero:
      return 1.0;
    case Policy::Power::kHalf:
      return std::sqrt(x);
    case Policy::Power::kOne:
      return x;
    case Policy::Power::kTwo:
      return x * x;
  }
  return x;
}

/// State: the values in memory, and the position in the order. The rest is derived: `next_read_` is the index
/// of the next reader in the row of readers.
class Engine {
 public:
  Engine(const Graph& graph, Bytes budget, const Policy& policy, std::int64_t max_steps, Limits& limits)
      : graph_(graph),
        budget_(budget),
        policy_(policy),
        max_steps_(max_steps),
        limits_(limits),
        present_(graph.num_values(), false),
        pins_(graph.num_values(), 0),
        wants_(graph.num_values(), 0),
        next_read_(graph.num_values(), 0),
        touched_(graph.num_values(), 0),
        op_mark_(graph.num_ops(), 0),
        listed_(graph.num_values(), false),
        cached_cost_(graph.num_values(), -1.0),
        ran_(graph.num_ops(), false),
        memory_(graph.resident),
        random_(policy.seed) {}

  Outcome run() {
    for (OpId op : graph_.ops()) {
      at_ = op;
      if (policy_.demand == Policy::Demand::kTogether) {
        run_together(op);
      } else {
        run_recursively(op);
      }
      if (stopped_) return std::move(outcome_);
      retire(op);
    }
    outcome_.complete = true;
    return std::move(outcome_);
  }

 private:
  void pin(OpId op, int by) {
    for (ValueId v : graph_.inputs[op]) {
      pins_[v] += by;
      wants_[v] += by;
    }
  }

  void run_together(OpId op) {
    std::vector<OpId> batch = missing_for(op);
    batch.push_back(op);
    for (OpId one : batch) pin(one, 1);
    for (OpId one : batch) {
      execute(one);
      pin(one, -1);
      if (stopped_) return;
    }
  }

  /// Ops whose outputs are missing and needed to run `op`, in the graph's order.
  std::vector<OpId> missing_for(OpId op) {
    ++generation_;
    std::vector<OpId> found;
    const auto visit = [&](OpId user) {
      for (ValueId v : graph_.inputs[user]) {
        if (in_memory(v) || op_mark_[graph_.producer[v]] == generation_) continue;
        op_mark_[graph_.producer[v]] = generation_;
        found.push_back(graph_.producer[v]);
      }
    };
    visit(op);
    for (std::size_t i = 0; i < found.size(); ++i) visit(found[i]);
    std::sort(found.begin(), found.end());
    return found;
  }

  /// An op being prepared: its first `ready` inputs are in memory and pinned.
  struct Frame {
    OpId op;
    std::vector<ValueId> inputs;
    std::size_t ready = 0;
  };
  Frame frame(OpId op) {
    const auto row = graph_.inputs[op];
    Frame result{op, {row.begin(), row.end()}};
    if (policy_.demand == Policy::Demand::kNewestFirst)
      std::reverse(result.inputs.begin(), result.inputs.end());
    // Inputs in memory may be evicted while the others are made, if nothing cheaper can.
    std::stable_partition(result.inputs.begin(), result.inputs.end(),
                          [&](ValueId v) { return !in_memory(v); });
    for (ValueId v : result.inputs) {
      ++wants_[v];
      touched_[v] = clock_;
    }
    return result;
  }
  /// Uses an explicit stack: chains of missing ops may be as long as the graph.
  void run_recursively(OpId root) {
    std::vector<Frame> stack;
    stack.push_back(frame(root));
    while (!stack.empty() && !stopped_) {
      Frame& top = stack.back();
      if (top.ready < top.inputs.size()) {
        const ValueId v = top.inputs[top.ready];
        if (in_memory(v)) {
          ++pins_[v];
          ++top.ready;
        } else {
          stack.push_back(frame(graph_.producer[v]));
        }
        continue;
      }
      execute(top.op);
      for (ValueId v : top.inputs) {
        --pins_[v];
        --wants_[v];
      }
      stack.pop_back();
    }
  }

  bool in_memory(ValueId v) const { return present_[v] || graph_.is_graph_input(v); }

  void execute(OpId op) {
    // Caps the clock: in endless runs staleness stops growing.
    constexpr std::int64_t kLastTick = kMaxCount - 1;
    const std::int64_t ticks = policy_.age == Policy::Age::kElapsed ? graph_.duration[op].count() : 1;
    clock_ = std::min(kLastTick, clock_ + ticks);
    Bytes needed = momentary(graph_, op);
    for (ValueId v : graph_.outputs[op]) {
      if (!present_[v]) needed += graph_.bytes[v];
    }
    if (memory_ + needed > budget_) needed += write_over(op);
    for (ValueId v : graph_.outputs[op]) ++pins_[v];
    while (memory_ + needed > budget_ && make_room(needed)) {
    }
    for (ValueId v : graph_.outputs[op]) --pins_[v];
    if (memory_ + needed > budget_)
      outcome_.overflow = std::max(outcome_.overflow, memory_ + needed - budget_);
    for (ValueId v : graph_.outputs[op]) {
      if (!present_[v]) memory_ += graph_.bytes[v];
      if (!present_[v]) cached_cost_[v] = -1.0;
      present_[v] = true;
      touched_[v] = clock_;
      if (!listed_[v]) pool_.push_back(v);
      listed_[v] = true;
    }
    for (ValueId v : graph_.inputs[op]) touched_[v] = clock_;
    ran_[op] = true;
    outcome_.plan.steps.push_back(op);
    stopped_ = stopped_ || limits_.spend(1) || std::ssize(outcome_.plan.steps) > max_steps_;
  }

  /// Releases inputs that no other op needs and that outputs may be written over. Returns the part of them
  /// that the step needs in addition to the outputs.
  Bytes write_over(OpId op) {
    Bytes beside;
    for (const auto& [v, saved] : reuses(graph_, op)) {
      const bool is_last = graph_.readers[v].back() <= at_ && wants_[v] == 1 && !graph_.kept[v];
      if (!is_last || !present_[v] || !can_evict(v)) continue;
      drop(v);
      beside += graph_.bytes[v] - saved;
    }
    return beside;
  }

  /// The order has passed `op`: its inputs lose this reader.
  void retire(OpId op) {
    for (ValueId v : graph_.inputs[op]) {
      const auto readers = graph_.readers[v];
      while (at(next_read_[v]) < readers.size() && readers[at(next_read_[v])] <= op) ++next_read_[v];
      if (policy_.eager && present_[v] && next_read(v) == kNever && !graph_.kept[v] && can_evict(v)) drop(v);
    }
    for (ValueId v : graph_.outputs[op]) {
      if (graph_.readers[v].empty() && !graph_.kept[v]) drop(v);
    }
  }

  void drop(ValueId v) {
    if (!present_[v]) return;
    present_[v] = false;
    memory_ -= graph_.bytes[v];
  }

  static constexpr std::int32_t kNever = std::numeric_limits<std::int32_t>::max();
  std::int32_t next_read(ValueId v) const {
    const auto readers = graph_.readers[v];
    const auto i = at(next_read_[v]);
    return i < readers.size() ? readers[i].index() : kNever;
  }

  /// Duration of recomputing v with all missing inputs, or nothing if that is impossible.
  std::optional<std::int64_t> closure(ValueId v) {
    ++generation_;
    stack_.assign(1, graph_.producer[v]);
    op_mark_[graph_.producer[v]] = generation_;
    std::int64_t sum = 0;
    while (!stack_.empty()) {
      const OpId op = stack_.back();
      stack_.pop_back();
      if (!graph_.recomputable[op]) return std::nullopt;
      sum += graph_.duration[op].count();
      ++work_;
      if (policy_.cost == Policy::Cost::kOwn && !has_frozen_) continue;
      for (ValueId x : graph_.inputs[op]) {
        if (in_memory(x) || op_mark_[graph_.producer[x]] == generation_) continue;
        op_mark_[graph_.producer[x]] = generation_;
        stack_.push_back(graph_.producer[x]);
      }
    }
    return policy_.cost == Policy::Cost::kOwn ? graph_.duration[graph_.producer[v]].count() : sum;
  }
  /// Duration of the missing values that need v, recursively.
  std::int64_t missing_readers(ValueId v) {
    ++generation_;
    std::vector<ValueId> open{v};
    std::int64_t sum = 0;
    while (!open.empty()) {
      const ValueId x = open.back();
      open.pop_back();
      for (OpId reader : graph_.readers[x]) {
        if (!ran_[reader] || op_mark_[reader] == generation_) continue;
        op_mark_[reader] = generation_;
        bool missing = false;
        for (ValueId w : graph_.outputs[reader]) {
          if (present_[w]) continue;
          missing = true;
          open.push_back(w);
        }
        if (missing) sum += graph_.duration[reader].count();
      }
    }
    return sum;
  }

  /// True if a missing value that may still be needed can only be recomputed from v.
  bool needed_again(ValueId v) {
    ++generation_;
    std::vector<ValueId> open{v};
    while (!open.empty()) {
      const ValueId x = open.back();
      open.pop_back();
      if (next_read(x) != kNever || wants_[x] > 0 || graph_.kept[x]) return true;
      for (OpId reader : graph_.readers[x]) {
        if (!graph_.recomputable[reader] || op_mark_[reader] == generation_) continue;
        op_mark_[reader] = generation_;
        for (ValueId w : graph_.outputs[reader]) {
          if (!present_[w]) open.push_back(w);
        }
      }
    }
    return false;
  }
  /// True if evicting v loses nothing that cannot be recomputed.
  bool can_evict(ValueId v) {
    if (closure(v)) return true;
    if (needed_again(v)) return false;
    has_frozen_ = true;
    return true;
  }

  double age(ValueId v) const {
    if (policy_.age != Policy::Age::kNextUse) return real(clock_ - touched_[v] + 1);
    std::int32_t next = next_read(v);
    if (next == kNever) {
      // Only useful for recomputation: as far away as the first use of a value recomputed from it.
      next = narrow<std::int32_t>(graph_.num_ops());
      for (OpId reader : graph_.readers[v]) {
        for (ValueId w : graph_.outputs[reader]) next = std::min(next, next_read(w));
      }
    }
    return real(std::max(1, next - at_.index()));
  }

  /// The cost of recomputing v, raised to its power, or nothing if v is needed and cannot be recomputed.
  std::optional<double> fresh_cost(ValueId v) {
    double cost = 0;
    if (const auto again = closure(v)) {
      cost = real(*again) + 1.0;
      if (policy_.cost == Policy::Cost::kNeighborhood) cost += real(missing_readers(v));
    } else if (needed_again(v)) {
      return std::nullopt;
    }
    return raised(cost, policy_.cost_power);
  }

  struct Scored {
    double score;
    ValueId value;
    double weight;
    bool fresh;
    friend bool operator<(const Scored& a, const Scored& b) {
      return std::tuple(a.score, a.value) < std::tuple(b.score, b.value);
    }
  };
  /// Computing costs takes most of the time, and evictions change few of them. So each call recomputes one in
  /// kRefresh, uses cached costs for the others, and recomputes the apparent minimum.
  static constexpr std::int64_t kRefresh = 8;

  std::vector<Scored> score_pool() {
    ++calls_;
    std::vector<Scored> scored;
    std::size_t kept = 0;
    for (ValueId v : pool_) {
      listed_[v] = present_[v];
      if (!present_[v]) continue;
      pool_[kept++] = v;
      if (pins_[v] > 0 || graph_.kept[v] || graph_.bytes[v] == Bytes()) continue;
      bool fresh =
          policy_.cost == Policy::Cost::kOwn || cached_cost_[v] < 0 || (calls_ + v.index()) % kRefresh == 0;
      if (fresh) {
        const auto cost = fresh_cost(v);
        cached_cost_[v] = cost ? *cost : -1.0;
        if (!cost) continue;
      }
      double weight = raised(real(graph_.bytes[v]), policy_.bytes_power) * raised(age(v), policy_.age_power);
      if (policy_.noise > 0) weight /= 1.0 + policy_.noise * random_.unit();
      scored.push_back({cached_cost_[v] / weight, v, weight, fresh});
    }
    pool_.resize(kept);
    work_ += std::ssize(scored) / 8;
    return scored;
  }

  /// Evicts until `needed` more bytes fit; false if nothing is left to evict.
  bool make_room(Bytes needed) {
    work_ = 1;
    std::vector<Scored> scored = score_pool();
    const auto later = [](const Scored& a, const Scored& b) { return b < a; };
    std::make_heap(scored.begin(), scored.end(), later);
    bool evicted = false;
    while (!scored.empty() && memory_ + needed > budget_) {
      std::pop_heap(scored.begin(), scored.end(), later);
      Scored& least = scored.back();
      if (!least.fresh) {
        const auto cost = fresh_cost(least.value);
        cached_cost_[least.value] = cost ? *cost : -1.0;
        if (!cost) {
          scored.pop_back();
          continue;
        }
        least.score = *cost / least.weight;
        least.fresh = true;
        std::push_heap(scored.begin(), scored.end(), later);
        continue;
      }
      if (closure(least.value) || !needed_again(least.value)) {
        drop_for_room(least.value);
        evicted = true;
      }
      scored.pop_back();
      for (Scored& one : scored) one.fresh = false;
    }
    stopped_ = stopped_ || limits_.spend(work_ / 2);
    return evicted && !stopped_;
  }
  void drop_for_room(ValueId v) {
    if (!closure(v)) has_frozen_ = true;
    drop(v);
    ++outcome_.evictions;
  }

  const Graph& graph_;
  Bytes budget_;
  Policy policy_;
  std::int64_t max_steps_;
  Limits& limits_;
  IndexVector<ValueId, bool> present_;
  IndexVector<ValueId, std::int32_t> pins_;   ///< must stay
  IndexVector<ValueId, std::int32_t> wants_;  ///< ops being prepared that read it
  IndexVector<ValueId, std::int32_t> next_read_;
  IndexVector<ValueId, std::int64_t> touched_;
  IndexVector<OpId, std::int64_t> op_mark_;
  std::vector<ValueId> pool_;  ///< all values in memory, and some that are not
  IndexVector<ValueId, bool> listed_;
  IndexVector<ValueId, double> cached_cost_;  ///< raised; negative: unknown
  IndexVector<OpId, bool> ran_;
  std::int64_t calls_ = 0;
  std::vector<OpId> stack_;
  Bytes memory_;
  OpId at_;
  std::int64_t clock_ = 0, generation_ = 0, work_ = 0;
  Random random_;
  bool has_frozen_ = false;  ///< a missing value may be beyond recomputation
  bool stopped_ = false;
  Outcome outcome_;
};

}  // namespace

Outcome run(const Graph& graph, Bytes budget, const Policy& policy, std::int64_t max_steps, Limits& limits) {
  return Engine(graph, budget, policy, max_steps, limits).run();
}

}  // namespace remat::evict
