#include "differential/random_tiny.h"

#include <algorithm>
#include <array>
#include <string>

#include "remat/quantity.h"

namespace remat::differential {
namespace {

enum class World { kSmall, kEqual, kMostlyZero, kManyDigits, kLimit };

World random_world(Random& random) {
  constexpr World kWorlds[] = {World::kSmall,      World::kSmall,      World::kSmall, World::kEqual,
                               World::kMostlyZero, World::kManyDigits, World::kLimit};
  return kWorlds[random.below(std::size(kWorlds))];
}

/// Amounts of one scale; `count` of them stay below the limit in sum.
class Amounts {
 public:
  Amounts(Random& random, std::int64_t count)
      : random_(random),
        world_(random_world(random)),
        equal_(random.between(1, 9)),
        most_((kMaxCount - 1) / std::max<std::int64_t>(1, count)) {}

  std::int64_t next() {
    switch (world_) {
      case World::kSmall:
        return random_.chance(0.1) ? 0 : random_.between(1, 9);
      case World::kEqual:
        return equal_;
      case World::kMostlyZero:
        return random_.chance(0.7) ? 0 : random_.between(1, 5);
      case World::kManyDigits:
        return std::min(most_, random_.below(std::int64_t{1} << random_.between(1, 62)));
      case World::kLimit:
        // Near the limit, with differences that floating point loses.
        return most_ - random_.below(random_.chance(0.5) ? 3 : most_ / 2);
    }
    return 0;
  }

 private:
  Random& random_;
  World world_;
  std::int64_t equal_, most_;
};

class Maker {
 public:
  explicit Maker(Random& random) : random_(random) {}

  exact::Graph run() {
    constexpr int kMaxOps = 8, kMaxValues = 9;
    for (std::int64_t k = random_.below(3); k > 0; --k) graph_.inputs.push_back(new_value());
    const std::int64_t ops = random_.between(1, kMaxOps);
    const int room = new_values() + kMaxValues;
    for (std::int64_t i = 0; i < ops; ++i) {
      exact::Op op;
      op.inputs = random_reads();
      for (std::int64_t k = random_outputs(); k > 0 && new_values() < room; --k) {
        op.outputs.push_back(new_value());
      }
      op.may_run_again = !random_.chance(0.15);
      while (i > 0 && random_.chance(0.12)) op.after.push_back(static_cast<int>(random_.below(i)));
      graph_.ops.push_back(std::move(op));
    }
    for (int v = 0; v < new_values(); ++v) {
      if (random_.chance(v + 1 == new_values() ? 0.6 : 0.12)) graph_.kept.push_back(v);
    }
    weigh();
    if (random_.chance(0.4)) write_over();
    if (random_.chance(0.3)) name_the_backward_pass();
    return std::move(graph_);
  }

 private:
  int new_values() const { return static_cast<int>(graph_.bytes.size()); }
  int new_value() {
    graph_.bytes.push_back(0);
    return new_values() - 1;
  }
  std::int64_t random_outputs() {
    const std::int64_t die = random_.below(20);
    return die == 0 ? 0 : die < 14 ? 1 : die < 18 ? 2 : 3;
  }

  /// Near values mostly, so that chains appear, and far ones often enough to be worth dropping.
  std::vector<int> random_reads() {
    std::vector<int> reads;
    for (std::int64_t k = std::min<std::int64_t>(new_values(), random_.below(4)); k > 0; --k) {
      const std::int64_t reach = random_.chance(0.5) ? std::min(new_values(), 3) : new_values();
      const int v = new_values() - 1 - static_cast<int>(random_.below(reach));
      if (std::find(reads.begin(), reads.end(), v) == reads.end()) reads.push_back(v);
    }
    return reads;
  }

  void weigh() {
    // One more for the largest workspace.
    Amounts sizes(random_, new_values() + 1);
    for (std::int64_t& bytes : graph_.bytes) bytes = sizes.next();
    Amounts durations(random_, static_cast<std::int64_t>(graph_.ops.size()));
    for (exact::Op& op : graph_.ops) {
      op.duration = durations.next();
      if (random_.chance(0.3)) op.workspace = sizes.next();
    }
  }

  /// Outputs over inputs, of equal size more often than by chance.
  void write_over() {
    for (exact::Op& op : graph_.ops) {
      std::vector<int> dying;
      for (int v : op.inputs) {
        if (std::find(graph_.inputs.begin(), graph_.inputs.end(), v) == graph_.inputs.end())
          dying.push_back(v);
      }
      for (int v : op.outputs) {
        if (dying.empty() || random_.chance(0.3)) continue;
        const auto at = dying.begin() + random_.below(std::ssize(dying));
        op.over.emplace_back(*at, v);
        std::int64_t& bytes = graph_.bytes[static_cast<std::size_t>(v)];
        if (random_.chance(0.5)) bytes = std::min(bytes, graph_.bytes[static_cast<std::size_t>(*at)]);
        dying.erase(at);
      }
    }
  }

  void name_the_backward_pass() {
    const std::int64_t ops = std::ssize(graph_.ops), first = random_.between(1, ops);
    for (std::int64_t i = first; i < ops; ++i) {
      exact::Op& op = graph_.ops[static_cast<std::size_t>(i)];
      op.is_backward = true;
      if (random_.chance(0.7)) op.forward_of = static_cast<int>(random_.below(first));
    }
  }

  Random& random_;
  exact::Graph graph_;
};

}  // namespace

exact::Graph random_tiny(Random& random) { return Maker(random).run(); }

Graph built(const exact::Graph& tiny) {
  const auto wide = [](const std::vector<int>& list) {
    return std::vector<std::int64_t>(list.begin(), list.end());
  };
  GraphBuilder builder("tiny");
  for (std::int64_t bytes : tiny.bytes) builder.add_value(Bytes(bytes));
  for (int v : tiny.inputs) builder.add_input(v);
  for (int v : tiny.kept) builder.add_output(v);
  for (const exact::Op& op : tiny.ops) {
    const std::vector<std::int64_t> inputs = wide(op.inputs), outputs = wide(op.outputs),
                                    after = wide(op.after);
    std::vector<std::array<std::int64_t, 2>> over;
    for (const auto& [input, output] : op.over) over.push_back({input, output});
    OpSpec spec;
    spec.name = "op";
    spec.duration = Duration(op.duration);
    spec.workspace = Bytes(op.workspace);
    spec.recomputable = op.may_run_again;
    spec.phase = op.is_backward ? Phase::kBackward : Phase::kNone;
    spec.forward_of = op.forward_of;
    spec.inputs = inputs;
    spec.outputs = outputs;
    spec.after = after;
    spec.over = over;
    builder.add_op(spec);
  }
  return builder.build();
}

}  // namespace remat::differential
