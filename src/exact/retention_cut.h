// What to keep across one moment and what to rerun after it, at the least duration, by minimum cuts. The
// result serves two purposes: its bound holds for every plan (src/bounds/duration.cc), its choice gives a
// plan (src/planners/retention, which repeats this at the next moment). Described in
// docs/planners/retention.md.
#pragma once

#include <cstdint>
#include <optional>

#include "plan/script.h"
#include "remat/graph.h"
#include "remat/limits.h"
#include "remat/plan.h"

namespace remat {

/// One choice at the first run of op `at`. In fixed order, all earlier ops have run by then and no later one
/// has; in free order, this is known only of ancestors and descendants.
struct Retention {
  OpId at;
  IndexVector<OpId, bool> rerun;       ///< ops rerun after `at`; other values needed later are kept
  Duration extra;                      ///< duration of all reruns plus the prices of fetched values
  Bytes held;                          ///< by kept values, without the step of `at` itself
  IndexVector<ValueId, bool> fetched;  ///< fetched from the host after `at`; empty without prices

  bool fetches(ValueId v) const { return !fetched.empty() && fetched[v]; }
};

/// The cost of holding each value on the host instead of in memory across a moment; kMaxCount: impossible.
using FetchPrices = IndexVector<ValueId, std::int64_t>;

struct RetentionResult {
  /// Lower bound on the duration beyond one run of each op, for every plan in the order within the budget.
  Duration bound;
  /// The fastest choice tried that fits, if any: it is on the lower hull of duration over memory, and so at
  /// most one step of that hull above the bound.
  std::optional<Retention> choice;
  std::int64_t ticks = 0;  ///< a few nanoseconds each, deterministic
};

/// Every value made before `at` and read after it (or kept) is in memory at `at`, or its op is rerun; the
/// inputs of a rerun are in memory at `at` or made by another rerun. For a price per byte, the cheapest such
/// choice is a minimum cut (a closure problem); the price at which it just fits gives the optimum of the
/// linear relaxation, found by secant steps along the hull. With prices `fetch`, a value needed later or by a
/// rerun may also be fetched, for its price in durations. Integers throughout. After about `most_ticks`, or
/// when `limits` are reached, returns what is proved by then.
RetentionResult solve_retention(const Graph& graph, OpId at, Bytes budget, OrderMode order,
                                std::int64_t most_ticks, Limits* limits = nullptr,
                                const FetchPrices* fetch = nullptr);

/// Only a choice, in a third of the time, in fixed order: a few steps along a hull on which later ops cost
/// more. Proves nothing.
RetentionResult quick_retention(const Graph& graph, OpId at, Bytes budget, std::int64_t most_ticks,
                                Limits* limits = nullptr, const FetchPrices* fetch = nullptr);

/// Only the bound of `solve_retention`, in half the time.
Duration retention_bound(const Graph& graph, OpId at, Bytes budget, OrderMode order, std::int64_t most_ticks,
                         Limits* limits = nullptr);

/// The script of a choice in fixed order: dropped values are recomputed or fetched, each as late as possible,
/// and then stay until their last reader. So the peak may move to another step, and be higher.
Script script_of(const Graph& graph, const Retention& choice);
/// The same for a choice without fetches.
Plan plan_of(const Graph& graph, const Retention& choice);

}  // namespace remat
