// Plans, the reference simulator, the validator, and the cost of a plan.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "remat/export.h"
#include "remat/graph.h"
#include "remat/host.h"
#include "remat/ids.h"
#include "remat/quantity.h"

namespace REMAT_API remat {

/// Fixed: first occurrences of the ops follow the graph's order. Free: any valid sequence. The two are
/// never mixed in a comparison.
enum class OrderMode { kFixed, kFree };
std::string_view to_string(OrderMode mode);

/// A sequence of steps, each of which runs one op, and, with a host, copies of values: those of one channel
/// in the sequence of their issue.
struct Plan {
  IndexVector<StepId, OpId> steps;
  std::vector<Copy> copies = {};
  friend bool operator==(const Plan&, const Plan&) = default;
};

/// Every op once, in the graph's order. Its peak is the reference for budgets in percent.
Plan keep_all_plan(const Graph& graph);

/// The rules of a valid plan, in the order in which the validator reports them.
enum class Rule {
  kOpExists,      ///< op index in range
  kInputReady,    ///< every input has an instance when it is read
  kAfter,         ///< ops in `after` have run before
  kRunsOnce,      ///< an op that forbids recomputation runs exactly once
  kEveryOpRuns,   ///< every op occurs at least once
  kFixedOrder,    ///< first occurrences follow the graph's order (only checked in fixed order)
  kCopyValue,     ///< a copied value is made by an op and is copyable
  kCopySteps,     ///< a copy is issued before its wait; a copy in may have both at one step
  kCopyOrder,     ///< the copies of a channel are listed by issue
  kCopyOnce,      ///< a value is copied out at most once
  kCopyBack,      ///< a copy in is issued at or after the wait of the copy out
  kCopySource,    ///< an instance exists when its copy out is issued
  kOnDevice,      ///< a value that a step reads is on the device, not on the host alone
  kWaitedFor,     ///< a step reads a copied-in instance only after its wait
  kKeptOnDevice,  ///< a kept output is on the device at the end
  kDuration,      ///< the plan takes less than 2^63
  kBudget,        ///< memory of every step within the budget (only checked where one is given)
  kHostBudget,    ///< host memory within the host's budget (only checked where it has one)
};
std::string_view to_string(Rule rule);

/// The first broken rule, with place and numbers in `message` (one line).
struct Violation {
  Rule rule;
  StepId step;  ///< none where the rule is about the whole plan
  std::string message;
};

/// What running a plan costs.
struct Simulation {
  Bytes peak;
  StepId peak_step;   ///< first step that reaches the peak
  Duration duration;  ///< exact; kTooLong where it does not fit into 63 bits
  Traffic traffic;    ///< of the copies; all zero without any
  friend bool operator==(const Simulation&, const Simulation&) = default;
};

/// Sum of the durations of the steps, beyond 64 bits if need be.
Wide total_duration(const Graph& graph, const Plan& plan);

/// The reference simulator: linear in steps, edges and outputs, independent of every planner. Memory of a
/// step = resident inputs + all instances alive at it + its workspace + saved generator states, less the
/// overlap of every output that is written over an input (`Graph::over`). The plan must be valid (see
/// `validate`); reading a value that has no instance is a bug of the caller. Without a host, copies take no
/// time; memory does not depend on time.
Simulation simulate(const Graph& graph, const Plan& plan, const Host* host = nullptr);
/// The same; `memory` receives the memory of each step.
Simulation simulate(const Graph& graph, const Plan& plan, IndexVector<StepId, Bytes>& memory,
                    const Host* host = nullptr);

/// Half-open time [begin, end) from the start of a plan.
struct TimeSpan {
  Duration begin, end;
  friend bool operator==(const TimeSpan&, const TimeSpan&) = default;
};
/// Times of the steps and copies of a plan.
struct PlanTimes {
  IndexVector<StepId, TimeSpan> steps;  ///< a step that waits for copies begins after the wait
  std::vector<TimeSpan> copies;         ///< as listed in the plan; while the channel transfers them
};
/// The plan must be valid and take less than 2^63; with copies it needs the host.
PlanTimes plan_times(const Graph& graph, const Plan& plan, const Host* host = nullptr);

/// Bytes on the host at each step, and after the last one.
IndexVector<StepId, Bytes> host_memory(const Graph& graph, const Plan& plan);

/// Live range [first, end) of one instance, in steps. A copied-in instance begins at the issue of its copy; a
/// copied-out one ends at the wait.
struct InstanceLife {
  ValueId value;
  StepId first;
  StepId end;
  friend bool operator==(const InstanceLife&, const InstanceLife&) = default;
};
/// Live ranges of all instances of a plan (graph inputs are not instances), by first step.
std::vector<InstanceLife> instance_lives(const Graph& graph, const Plan& plan);

/// Bytes of saved generator states at each step; empty if the graph has none. The state that a recomputed op
/// drew from is held from its first run to its last, and each later run also holds the current state.
IndexVector<StepId, Bytes> saved_generator_states(const Graph& graph, const Plan& plan);

/// A step whose output is written over an input that it is the last to read.
struct Overwrite {
  StepId step;
  Over pair;
  friend bool operator==(const Overwrite&, const Overwrite&) = default;
};
/// All overwrites of a plan, by step.
std::vector<Overwrite> overwrites(const Graph& graph, const Plan& plan);

/// The first broken rule, or nothing. Steps may be any integers, as read from a file.
std::optional<Violation> validate(const Graph& graph, std::span<const std::int64_t> steps, OrderMode order,
                                  std::optional<Bytes> budget = std::nullopt,
                                  std::span<const Copy> copies = {}, const Host* host = nullptr);
std::optional<Violation> validate(const Graph& graph, const Plan& plan, OrderMode order,
                                  std::optional<Bytes> budget = std::nullopt, const Host* host = nullptr);

/// (duration - base) / base; 0 where the graph takes no time at all.
double overhead(const Graph& graph, Duration duration);
/// Steps beyond the first run of each op.
std::int64_t recomputed_ops(const Graph& graph, const Plan& plan);

}  // namespace REMAT_API remat
