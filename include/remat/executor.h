// Plans for executors that take only a set of saved results, no sequence of steps: the best such plan, and
// bounds over all such sets. docs/executors.md defines each executor.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "remat/export.h"
#include "remat/graph.h"
#include "remat/planner.h"

namespace REMAT_API remat {

/// kRemat: any plan. kPartitioner: a set of forward ops is recomputed, each once, in the backward half, as
/// late as possible (PyTorch's partitioner); with a host, saved results may be offloaded between the halves,
/// and the device waits for every copy. kCheckpoint: a whole region, except ops whose results are saved,
/// is recomputed once, in order, where its backward half begins (`torch.utils.checkpoint`).
enum class Executor { kRemat, kPartitioner, kCheckpoint };
std::string_view to_string(Executor executor);
/// Throws UsageError that lists the known names.
Executor parse_executor(std::string_view text);

/// Consecutive forward ops that are recomputed together: those of one numbered module.
struct CheckpointRegion {
  std::string name;         ///< "layers.3"
  std::vector<OpId> ops;    ///< in order
  OpId trigger;             ///< the backward op before which the region is recomputed
  std::vector<OpId> again;  ///< ops that the plan recomputes; empty: none
};

struct ExecutorPlan {
  Executor executor = Executor::kRemat;
  /// Status and bound are over the executor's plans alone. `kOptimal`: no set of saved results within the
  /// budget is faster. `kInfeasible`: no set is within the budget.
  PlanResult result;
  std::vector<CheckpointRegion> regions;  ///< of the checkpoint executor
  std::vector<OpId> again;                ///< ops that `result.plan` recomputes, ascending
  /// values saved by the forward half for the backward half, ascending; those on the host are in the plan's
  /// copies
  std::vector<ValueId> saved;
  Bytes saved_bytes;
  Bytes least_peak;  ///< of the sets that were simulated
};

/// The executor's fastest plan within the budget: an integer program over the saved sets, whose answers are
/// simulated. Only for fixed order and objective time; with a host only for kPartitioner, and then only the
/// bounds for all plans with copies are proved. `Problem::starts` are ignored. Throws UsageError for other
/// problems, InputError for a graph without what the executor needs: a backward half and, for kCheckpoint,
/// numbered modules with known backward ops.
ExecutorPlan make_executor_plan(const Problem& problem, Executor executor, const PlanOptions& options,
                                Limits& limits);

}  // namespace REMAT_API remat
