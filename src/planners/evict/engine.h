// Runs the graph's order in a memory of fixed size: evicts values by a score when memory is full, recomputes
// missing ones on demand. One engine for `dtr`, which must not look ahead, and `evict`, which may.
#pragma once

#include "remat/limits.h"
#include "remat/plan.h"

namespace remat::evict {

/// The score of a value in memory: cost^a / (bytes^b * age^c), after h of DTR (Kirisame et al. 2021). The
/// value with the least score is evicted first.
struct Policy {
  enum class Cost {
    kOwn,           ///< duration of its op
    kClosure,       ///< and of everything missing that the op needs, recursively
    kNeighborhood,  ///< and of the missing values that would need it (e* of DTR)
  };
  enum class Age {
    kStale,    ///< steps since it was made or read last: all that an online planner knows
    kElapsed,  ///< the same in duration
    kNextUse,  ///< steps of the graph's order until it is read next
  };
  enum class Power { kZero, kHalf, kOne, kTwo };

  /// How missing inputs of an op are recomputed.
  enum class Demand {
    kTogether,     ///< all missing ops in the graph's order, inputs pinned: fewest recomputations
    kOldestFirst,  ///< input by input, recursively, pinning only inputs of running ops: least memory
    kNewestFirst,  ///< the same, inputs made later in the order first
  };

  Cost cost = Cost::kClosure;
  Age age = Age::kNextUse;
  Power cost_power = Power::kOne;
  Power bytes_power = Power::kOne;
  Power age_power = Power::kOne;
  bool eager = false;  ///< evict a value as soon as no later op of the order reads it
  Demand demand = Demand::kTogether;
  /// Scores are multiplied by a random factor in [1, 1 + noise), drawn from `seed`.
  double noise = 0;
  std::uint64_t seed = 0;
  friend bool operator==(const Policy&, const Policy&) = default;
};

struct Outcome {
  Plan plan;              ///< valid in fixed order, even if it overflowed
  bool complete = false;  ///< false: the limits or the cap on steps ended the run; `plan` is not valid
  Bytes overflow;         ///< most bytes over the budget by the engine's own count
  std::int64_t evictions = 0;
};

/// One run. O(steps * (values in memory * closure)) at worst; the limits are asked at every eviction.
Outcome run(const Graph& graph, Bytes budget, const Policy& policy, std::int64_t max_steps, Limits& limits);

}  // namespace remat::evict
