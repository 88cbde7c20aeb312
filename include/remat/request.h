// One request for every kind of plan: graph, budget, the measure that the budget bounds, executor and effort.
// The command line, Python and PyTorch call `answer`.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "remat/allocator.h"
#include "remat/arena.h"
#include "remat/executor.h"
#include "remat/export.h"
#include "remat/io.h"
#include "remat/limits.h"
#include "remat/planner.h"

namespace REMAT_API remat {

/// What the budget bounds. kPeak: live bytes. kArena: the arena that holds every buffer at a fixed offset.
/// kReserved: device memory that PyTorch's caching allocator reserves.
enum class Measure { kPeak, kArena, kReserved };
std::string_view to_string(Measure measure);

/// How long and how hard planners work.
struct Effort {
  PlanOptions options;                     ///< of the planner; seed and threads
  std::optional<double> time_limit;        ///< seconds
  std::optional<std::int64_t> work_limit;  ///< deterministic units
  double gap = 0;                          ///< requested gap, as a share; 0: none

  void apply(Limits& limits) const;
};

/// The graph and the starts of the problem must outlive the request.
struct Request {
  Problem problem;  ///< graph, budget, order, objective, host, known plans
  std::string planner = "auto";
  Measure budget_on = Measure::kPeak;
  Executor executor = Executor::kRemat;  ///< that will run the plan
  std::int64_t alignment = 64;           ///< in bytes: with kArena every offset is a multiple of it
  AllocatorConfig allocator = {};        ///< for kReserved
  Effort effort = {};
};

/// "budget_on='arena'", and "host=" without a value.
std::string spelled_for_python(std::string_view option, std::string_view value);

/// The options of a request that are words or numbers, in the order of their listing. Each is a flag of
/// `remat plan` and a keyword of `remat.plan`.
std::span<const OptionInfo> request_options();
/// Throws UsageError for a name that is none of these and for a value that the option does not take.
void set_option(Request& request, std::string_view name, const std::string& value,
                const Spelling& spelling = spelled_for_python);
/// The option's value, as text that `set_option` reads back.
std::string option_of(const Request& request, std::string_view name);

/// The one place that decides which options go together. Throws UsageError that names two options which do
/// not, spelled by `spelling`; also for an unknown planner and for an alignment outside [1, 2^62).
void check_request(const Request& request, const Spelling& spelling = spelled_for_python);

/// The buffers of a plan and their offsets.
struct PackedPlan {
  PlanBuffers buffers;
  LayoutResult layout;

  /// Graph inputs and the pool of all buffers.
  Bytes arena() const { return buffers.resident + layout.arena; }
};

/// The answer to a request. `result` is as from `make_plan`, but judged by the measure in place of the peak:
/// optimal and feasible only if `footprint` is within the budget. With an executor, status and bounds are
/// over the executor's plans alone.
struct Answer {
  PlanResult result;
  Bytes footprint;                            ///< bytes of `result.plan` by the measure, if there is a plan
  std::optional<PackedPlan> packed;           ///< with kArena, if there is a plan
  std::optional<AllocatorPeaks> peaks;        ///< with kReserved, if there is a plan
  std::optional<ExecutorPlan> executor_plan;  ///< with an executor; `ExecutorPlan::result` is `result`
  std::optional<PlanResult> full;             ///< with an executor: the best full plan, for comparison
  int measured = 0;                           ///< plans laid out or run through the allocator
  /// The smallest budget known to work, if the request found one as a by-product. Never set for kPeak without
  /// an executor: call `smallest_known_budget` there.
  std::optional<Bytes> smallest_known;
};

/// Checks a request and answers it within `limits`, to which its effort has been applied. The executor's plan
/// gets half of them, and the full plan starts from it. With a store, planners that improve plans start from
/// those stored, and the plan found is added. The store is not used with a host (it holds no copies), with a
/// work limit (plans must not depend on earlier calls), with a measure other than kPeak, or with an executor.
/// Throws as `check_request`, `make_plan`, `make_arena_plan`, `make_reserved_plan` and `make_executor_plan`
/// do.
Answer answer(const Request& request, Limits& limits, PlanStore* store = nullptr);

/// The record of a plan for a file. It holds the request only where the file format can express it: not for
/// measures other than kPeak, nor for executors.
PlanRecord make_record(const Request& request, const PlanResult& result);

}  // namespace REMAT_API remat
