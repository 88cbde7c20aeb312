// One request for every kind of plan: a graph, a budget, what the budget is a budget on, who runs the plan,
// and how hard to look. `answer` is what the command line, Python and PyTorch call.
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

/// What a budget is a budget on. kPeak: live bytes. kArena: what they need with a fixed offset for each
/// buffer. kReserved: what PyTorch's caching allocator takes from the device for them.
enum class Measure { kPeak, kArena, kReserved };
std::string_view to_string(Measure measure);

/// How long and how hard planners work.
struct Effort {
  PlanOptions options;                     ///< of the planner; seed and threads
  std::optional<double> time_limit;        ///< seconds
  std::optional<std::int64_t> work_limit;  ///< deterministic units
  double gap = 0;                          ///< as a share; 0: only at the limits

  void apply(Limits& limits) const;
};

/// What is asked for. The graph and the starts of the problem must outlive it.
struct Request {
  Problem problem;  ///< graph, budget, order, objective, host, plans known before
  std::string planner = "auto";
  Measure budget_on = Measure::kPeak;
  Executor executor = Executor::kRemat;  ///< the executor whose limits the plan keeps
  std::int64_t alignment = 64;           ///< in bytes: with kArena every offset is a multiple of it
  AllocatorConfig allocator = {};        ///< for kReserved
  Effort effort = {};
};

/// "budget_on='arena'", and "host=" without a value.
std::string spelled_for_python(std::string_view option, std::string_view value);

/// The options of a request that are words or numbers, in the order in which they are listed: `remat plan`
/// has a flag for each, and `remat.plan` a keyword.
std::span<const OptionInfo> request_options();
/// Throws UsageError, in one line, for a name that is none of them and for a value that the option does not
/// take.
void set_option(Request& request, std::string_view name, const std::string& value,
                const Spelling& spelling = spelled_for_python);
/// What `set_option` reads again.
std::string option_of(const Request& request, std::string_view name);

/// Which options go together, decided here and nowhere else. Throws UsageError, in one line that names both
/// options as `spelling` has them; for a planner that does not exist; for an alignment outside [1, 2^62).
void check_request(const Request& request, const Spelling& spelling = spelled_for_python);

/// A plan's buffers with an offset each.
struct PackedPlan {
  PlanBuffers buffers;
  LayoutResult layout;

  /// Graph inputs and the pool of all buffers.
  Bytes arena() const { return buffers.resident + layout.arena; }
};

/// What came of a request. `result` is as from `make_plan`, with what the plan takes by the measure in place
/// of its peak: optimal and feasible only where that is within the budget. With an executor, status and
/// bounds are those of the executor alone.
struct Answer {
  PlanResult result;
  Bytes takes;                           ///< by the measure, of `result.plan` if there is one
  std::optional<PackedPlan> packed;      ///< of a plan, with kArena
  std::optional<AllocatorPeaks> peaks;   ///< of a plan, with kReserved
  std::optional<ExecutorPlan> executor;  ///< with an executor; `ExecutorPlan::result` is `result`
  std::optional<PlanResult>
      full;          ///< with an executor: what any plan can do, found in what is left of limits
  int measured = 0;  ///< plans that were laid out or run through the allocator
  /// The smallest budget that is known to work where nobody has to look for it: not with kPeak and no
  /// executor, for which there is `smallest_known_budget`.
  std::optional<Bytes> smallest_known;
};

/// Checks a request and answers it within limits, which the effort has been applied to. The executor's plan
/// gets half of them, and the full plan beside it starts from that one. With a store, planners that improve
/// on plans start from those known there, and it learns the plan found: not with a host, whose copies no
/// store knows, nor with a work limit, which asks for the same plan whatever came before, nor with another
/// measure or an executor. Throws as `check_request`, `make_plan`, `make_arena_plan`, `make_reserved_plan`
/// and `make_executor_plan` do.
Answer answer(const Request& request, Limits& limits, PlanStore* store = nullptr);

/// The plan of an answer for a file. What was asked is in it where a file can say how to ask it again: not
/// for budgets on other measures than the peak, nor for executors.
PlanRecord make_record(const Request& request, const PlanResult& result);

}  // namespace REMAT_API remat
