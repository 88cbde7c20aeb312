// What to keep across one moment and what to run again after it, at the least duration: by minimum cuts. The
// answer has two readers: its bound holds for every plan (src/bounds/duration.cc), its choice is a plan
// (src/planners/retention, which asks again at the next moment). docs/planners/retention.md tells it whole.
#pragma once

#include <cstdint>
#include <optional>

#include "plan/script.h"
#include "remat/graph.h"
#include "remat/limits.h"
#include "remat/plan.h"

namespace remat {

/// One choice at the first run of op `at`. In fixed order all earlier ops have run then and no later one; in
/// free order that is known of its ancestors and its descendants.
struct Retention {
  OpId at;
  IndexVector<OpId, bool>
      rerun;       ///< runs again after `at`; what its readers need and it does not make is kept
  Duration extra;  ///< of all reruns, and the prices of what is fetched
  Bytes held;      ///< by kept values beside the inputs and outputs of `at` and its workspace
  IndexVector<ValueId, bool> fetched;  ///< back from a host after `at`; empty where there are no prices

  bool fetches(ValueId v) const { return !fetched.empty() && fetched[v]; }
};

/// What it costs to have each value on a host across a moment instead of in memory; kMaxCount: impossible.
using FetchPrices = IndexVector<ValueId, std::int64_t>;

struct RetentionResult {
  /// No plan in the order within the budget takes less beyond one run of each op.
  Duration bound;
  /// The fastest that fits among those looked at, if any does: on the lower hull of duration over memory, and
  /// so at most one step of that hull above the bound.
  std::optional<Retention> choice;
  std::int64_t ticks = 0;  ///< some nanoseconds each, deterministic
};

/// Every value made before `at` and read after it (or kept) is in memory beside `at`, or its op runs again;
/// what a rerun reads is in memory beside `at` or made by another rerun. For a price per byte the cheapest
/// such choice is a minimum cut (a closure problem); the price at which it just fits is the optimum of the
/// linear relaxation, found by secant steps along the hull. With prices `fetch`, a value that is wanted or
/// read by a rerun may also be fetched, for its price in durations. Integers throughout. Stops after some
/// `most_ticks`, or once `limits` are reached, with what was proved until then.
RetentionResult solve_retention(const Graph& graph, OpId at, Bytes budget, OrderMode order,
                                std::int64_t most_ticks, Limits* limits = nullptr,
                                const FetchPrices* fetch = nullptr);

/// Only a choice, in a third of the time, in fixed order: few steps along the hull on which later ops are
/// dearer. Nothing is proved.
RetentionResult quick_retention(const Graph& graph, OpId at, Bytes budget, std::int64_t most_ticks,
                                Limits* limits = nullptr, const FetchPrices* fetch = nullptr);

/// Only the bound of the first, in half the time.
Duration retention_bound(const Graph& graph, OpId at, Bytes budget, OrderMode order, std::int64_t most_ticks,
                         Limits* limits = nullptr);

/// In fixed order, what the choice drops comes back, each as late as possible: runs again, or is fetched.
/// What is back stays until its last reader, so the peak may lie elsewhere and above. For choices in fixed
/// order.
Script script_of(const Graph& graph, const Retention& choice);
/// The same for a choice without fetches.
Plan plan_of(const Graph& graph, const Retention& choice);

}  // namespace remat
