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

/// Fixed order: at the first run of an op, also all values that are read at or after it (or kept) and whose
/// op ran before and may not run again. O(edges).
PeakBound forced_bound(const Graph& graph);

/// The dearest step on the cheapest way to bring the inputs of one op, or all kept outputs, into memory
/// together: of several values that are alive at once one was made last, while the others were alive.
/// Searched backwards over sets of values within a fixed number of units. Returns `known` where it proves
/// nothing better. Valid in the order that it is asked for. docs/bounds.md has the proof.
PeakBound pebbling_bound(const Graph& graph, OrderMode order, const PeakBound& known);

/// The best of the peak bounds above for the order and, up to 20,000 ops, of `last_run` (docs/bounds.md):
/// O(edges) and some milliseconds, with `last_run` up to some 0.1 s.
PeakBound best_peak_bound(const Graph& graph, OrderMode order);

/// A lower bound on the duration of every plan within a budget, in the order that it was asked for.
struct DurationBound {
  std::string argument;  ///< "base", "cut", "retention", "offload", "stage_lp", "stage_milp"
  Duration duration;
};

/// The cheap duration bounds: what must be dropped at the dearest step has to run again. Near linear, and the
/// minimum cuts of `retention` for a tenth of a second at most. Used for every result.
DurationBound cheap_duration_bound(const Graph& graph, Bytes budget, OrderMode order);

/// The best duration bound that fits into the limits: the cheap ones, then (fixed order) relaxations and
/// integer programs of the stage model over more and more moments at which memory is scarce. `known` is the
/// duration of a plan within the budget; it sharpens the models, and the bound never exceeds it. With a work
/// limit and no time limit it is repeatable. `faster`, if given, gets a plan within the budget that takes
/// less than `known`, where one is met on the way.
DurationBound best_duration_bound(const Graph& graph, Bytes budget, OrderMode order,
                                  std::optional<Duration> known, Limits& limits,
                                  std::optional<Plan>* faster = nullptr);

/// Bounds that hold for plans with copies to a host, too; those above do not: a value on the host is neither
/// in memory nor made again. The floor of the ops alone: an op has its inputs and outputs on the device.
/// (Kept outputs need not be there together before the last step has ended.)
PeakBound host_peak_bound(const Graph& graph);

/// Fixed order: the best of the relaxations at some scarce moments, with the host as a third choice; at least
/// every op once. Free order: every op once.
DurationBound host_duration_bound(const Graph& graph, Bytes budget, OrderMode order, const Host& host,
                                  Limits& limits);

/// What was proved about a plan, and a faster one where one was found on the way.
struct Proof {
  DurationBound bound;
  std::optional<Plan> plan;  ///< within the budget and faster than the plan that was given
  bool optimal = false;      ///< `plan`, or else the plan that was given, has the least duration in the order
};

/// Proves that `plan`, which fits the budget, is the fastest one in the order, or finds a faster one: the
/// stage model as an integer program in which only faster plans are sought. For graphs of up to some 200
/// ops; larger ones get the best bound that the limits allow.
Proof prove_optimal(const Graph& graph, Bytes budget, OrderMode order, const Plan& plan, Limits& limits);

}  // namespace REMAT_API remat
