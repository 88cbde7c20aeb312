// Plans for executors that take a set of saved results and no order: what they can do, the best of it, and
// what no set of theirs can beat. docs/executors.md defines each executor.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "remat/export.h"
#include "remat/graph.h"
#include "remat/planner.h"

namespace REMAT_API remat {

/// kRemat: any plan. kPartitioner: a set of forward ops runs again, each once, in the backward half, as late
/// as possible (PyTorch's partitioner). kCheckpoint: a region runs again as a whole but for the ops whose
/// results are saved, in order, once, where its backward half begins (`torch.utils.checkpoint`).
enum class Executor { kRemat, kPartitioner, kCheckpoint };
std::string_view to_string(Executor executor);
/// Throws UsageError with the words that are known.
Executor parse_executor(std::string_view text);

/// Forward ops in a row that run again together: those of one numbered module.
struct CheckpointRegion {
  std::string name;         ///< "layers.3"
  std::vector<OpId> ops;    ///< in order
  OpId trigger;             ///< the backward op before which it runs again
  std::vector<OpId> again;  ///< of the plan; empty: it is left alone
};

struct ExecutorPlan {
  Executor executor = Executor::kRemat;
  /// Within the executor: `kOptimal`: no set of saved results that keeps the budget is faster; `kInfeasible`:
  /// none keeps it. The duration bound holds for the executor alone.
  PlanResult result;
  std::vector<CheckpointRegion> regions;  ///< of the checkpoint executor
  std::vector<OpId> again;                ///< ops that run again in `result.plan`, ascending
  std::vector<ValueId> saved;             ///< results that the first half leaves for the second, ascending
  Bytes saved_bytes;
  Bytes least_peak;  ///< of the sets that were looked at
};

/// The fastest set of the executor whose plan is within the budget, by an integer program over the sets whose
/// answers are simulated. Fixed order, least time and no host only; starts are not looked at. Throws
/// UsageError for another problem, InputError for a graph that does not have what the executor needs: a
/// backward half and, for checkpoints, numbered modules whose backward ops are known.
ExecutorPlan make_executor_plan(const Problem& problem, Executor executor, const PlanOptions& options,
                                Limits& limits);

}  // namespace REMAT_API remat
