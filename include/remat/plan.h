// Plans, the reference simulator, and the metrics that everything else agrees on.
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

/// A sequence of steps; each runs one op. With a host also copies of values, each channel's in the sequence
/// in which they are issued.
struct Plan {
  IndexVector<StepId, OpId> steps;
  std::vector<Copy> copies = {};
  friend bool operator==(const Plan&, const Plan&) = default;
};

/// Every op once, in the graph's order. Its peak is the reference for budgets in percent.
Plan keep_all_plan(const Graph& graph);

/// The rules of a valid plan, in the order in which the validator reports them.
enum class Rule {
  kOpExists,     ///< op index in range
  kInputReady,   ///< every input has an instance when it is read
  kAfter,        ///< ops in `after` have run before
  kRunsOnce,     ///< an op that forbids recomputation runs exactly once
  kEveryOpRuns,  ///< every op occurs at least once
  kFixedOrder,   ///< first occurrences follow the graph's order (only checked in fixed order)
  kCopyValue,    ///< a copied value is made by an op and may be copied
  kCopySteps,  ///< issue and wait of a copy are steps in this order; only a copy in may have both at one step
  kCopyOrder,  ///< the copies of a channel are listed as they are issued
  kCopyOnce,   ///< a value is copied out at most once
  kCopyBack,   ///< a copy in is issued no earlier than the wait of the copy out of its value
  kCopySource,    ///< a copy out has an instance at its issue
  kOnDevice,      ///< a value that a step reads is on the device, not on the host alone
  kWaitedFor,     ///< a step reads no instance whose copy in has not been waited for
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

/// Sum of the durations of the steps, whatever it is.
Wide total_duration(const Graph& graph, const Plan& plan);

/// The reference simulator: linear in steps, edges and outputs, independent of every planner.
/// Memory of a step = resident inputs + all instances alive at it + its workspace + saved generator states,
/// less the overlap of every output that takes the place of an input (`Graph::over`). The plan must be valid
/// (see `validate`); reading a value that has no instance is a caller bug. Memory does not depend on time:
/// without a host the copies of a plan take none, and the memory is the same.
Simulation simulate(const Graph& graph, const Plan& plan, const Host* host = nullptr);
/// As above, and the memory of each step.
Simulation simulate(const Graph& graph, const Plan& plan, IndexVector<StepId, Bytes>& memory,
                    const Host* host = nullptr);

/// Half-open time [begin, end) from the start of a plan.
struct TimeSpan {
  Duration begin, end;
  friend bool operator==(const TimeSpan&, const TimeSpan&) = default;
};
/// When everything of a plan happens.
struct PlanTimes {
  IndexVector<StepId, TimeSpan> steps;  ///< a step that waits for copies begins after the wait
  std::vector<TimeSpan> copies;         ///< as in the plan, each while its channel is busy with it
};
/// `plan` is valid and takes less than 2^63; one with copies needs the host.
PlanTimes plan_times(const Graph& graph, const Plan& plan, const Host* host = nullptr);

/// Bytes on the host at each step, and after the last one.
IndexVector<StepId, Bytes> host_memory(const Graph& graph, const Plan& plan);

/// Half-open life [first, end) of one instance in steps. An instance that a copy in brings begins at its
/// issue; one that is copied out ends at the wait.
struct InstanceLife {
  ValueId value;
  StepId first;
  StepId end;
  friend bool operator==(const InstanceLife&, const InstanceLife&) = default;
};
/// Lives of all instances that a plan makes (graph inputs are not instances), by first step.
std::vector<InstanceLife> instance_lives(const Graph& graph, const Plan& plan);

/// Bytes of generator states at each step; nothing at all where the graph has none. What an op drew from that
/// runs again is held from its first run to its last, and each further run holds the state of the moment too.
IndexVector<StepId, Bytes> saved_generator_states(const Graph& graph, const Plan& plan);

/// A step whose output takes the place of an input that it is the last to read.
struct Overwrite {
  StepId step;
  Over pair;
  friend bool operator==(const Overwrite&, const Overwrite&) = default;
};
/// All of a plan, by step.
std::vector<Overwrite> overwrites(const Graph& graph, const Plan& plan);

/// The first broken rule, or nothing. Takes steps as they come from a file: any integers.
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
