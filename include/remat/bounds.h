// Lower bounds that no plan can beat, each with the argument that proves it.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "remat/export.h"
#include "remat/graph.h"
#include "remat/limits.h"
#include "remat/plan.h"

namespace REMAT_API remat {

/// A lower bound on the peak of every plan in an order mode.
struct PeakBound {
  std::string argument;  ///< "floor", ...
  Bytes peak;
  OpId op;  ///< the op that needs it, or none
};

/// The per-op floor: resident inputs + the inputs, outputs and workspace of one op, and resident inputs +
/// all kept outputs. Valid in both orders. O(edges).
PeakBound floor_bound(const Graph& graph);

/// Fixed order: the floor, plus, at the first run of each op, all earlier values that are still needed (read
/// at or after it, or kept) and whose op must not run again. O(edges).
PeakBound forced_bound(const Graph& graph);

/// The least peak of any way to bring the inputs of one op, or all kept outputs, into memory together: of
/// several values alive at once, one was made last, while the others were alive. Searched backwards over sets
/// of values within a fixed number of work units. Returns `known` if it proves nothing better. Valid for
/// `order`. docs/bounds.md has the proof.
PeakBound pebbling_bound(const Graph& graph, OrderMode order, const PeakBound& known);

/// The best of the peak bounds above for the order and, up to 20,000 ops, of `last_run` (docs/bounds.md):
/// O(edges) and a few milliseconds; `last_run` takes up to about 0.1 s.
PeakBound best_peak_bound(const Graph& graph, OrderMode order);

/// A lower bound on the duration of every plan within a budget, in a given order mode.
struct DurationBound {
  std::string argument;  ///< "base", "cut", "retention", "offload", "stage_lp", "stage_milp"
  Duration duration;
};

/// The cheap duration bounds: what must be dropped at the step that needs most memory has to run again. Near
/// linear, plus the minimum cuts of `retention` for at most 0.1 s. Used for every result.
DurationBound cheap_duration_bound(const Graph& graph, Bytes budget, OrderMode order);

/// The best duration bound within the limits: the cheap ones, then (fixed order) relaxations and integer
/// programs of the stage model over more and more moments at which memory is scarce. `known` is the duration
/// of a plan within the budget; it sharpens the models, and the bound never exceeds it. Deterministic with a
/// work limit and no time limit. `faster`, if given, receives a plan within the budget that takes less than
/// `known`, if the search meets one.
DurationBound best_duration_bound(const Graph& graph, Bytes budget, OrderMode order,
                                  std::optional<Duration> known, Limits& limits,
                                  std::optional<Plan>* faster = nullptr);

/// A peak bound that also holds for plans with copies to a host; those above do not, since a value on the
/// host is neither in device memory nor recomputed. Only the floor of the ops: an op has its inputs and
/// outputs on the device. (Kept outputs need not be there together before the last step has ended.)
PeakBound host_peak_bound(const Graph& graph);

/// Fixed order: the best relaxation at moments at which memory is scarce, with the host as a third choice,
/// and at least every op once. Free order: every op once.
DurationBound host_duration_bound(const Graph& graph, Bytes budget, OrderMode order, const Host& host,
                                  Limits& limits);

/// What was proved about a plan, and a faster plan if one was found.
struct Proof {
  DurationBound bound;
  std::optional<Plan> plan;  ///< within the budget and faster than the plan that was given
  bool optimal = false;      ///< `plan`, or else the plan that was given, has the least duration in the order
};

/// Proves that `plan`, which is within the budget, is the fastest in the order, or finds a faster one: an
/// integer program of the stage model, restricted to faster plans. Practical up to about 200 ops; larger
/// graphs get the best bound within the limits.
Proof prove_optimal(const Graph& graph, Bytes budget, OrderMode order, const Plan& plan, Limits& limits);

}  // namespace REMAT_API remat
