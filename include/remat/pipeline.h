// Pipeline parallelism: where to cut a training step into stages, and what each stage recomputes within its
// device's budget.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "remat/export.h"
#include "remat/graph.h"
#include "remat/limits.h"
#include "remat/plan.h"
#include "remat/planner.h"

namespace REMAT_API remat {

/// 1F1B: one forward, one backward, after a warm-up (Narayanan et al. 2019, PipeDream-Flush). Interleaved:
/// the same with several chunks of the model on each device (Narayanan et al. 2021).
enum class Schedule { k1f1b, kInterleaved };
std::string_view to_string(Schedule schedule);

/// A device runs the forward or backward half of one of its chunks for one micro-batch. Chunk c of device d
/// is the virtual stage c * devices + d.
struct Turn {
  int microbatch = 0, chunk = 0;
  bool backward = false;
  friend bool operator==(const Turn&, const Turn&) = default;
};

/// The sequence of turns of each device. Interleaved: as Megatron-LM does it, with micro-batches a multiple
/// of the devices. Throws UsageError.
std::vector<std::vector<Turn>> schedule_turns(Schedule schedule, int devices, int chunks, int microbatches);

/// For each virtual stage, the most micro-batches in flight: forward half begun, backward half not ended.
std::vector<int> most_in_flight(const std::vector<std::vector<Turn>>& turns, int chunks);

/// The times of all turns if each begins as soon as its device and its inputs are ready.
struct ScheduleTimes {
  Duration duration;                         ///< until the last device is done
  std::vector<Duration> busy;                ///< of each device
  std::vector<std::vector<TimeSpan>> turns;  ///< as in the sequence that was timed
  double bubble() const;                     ///< share of the devices' time spent waiting
};

/// `forward` and `backward`: durations by virtual stage. A forward half waits for that of the previous
/// virtual stage, a backward half for that of the next one, the last backward half for its own forward half.
/// Communication takes no time. Throws UsageError for sequences that deadlock.
ScheduleTimes time_schedule(const std::vector<std::vector<Turn>>& turns, std::span<const Duration> forward,
                            std::span<const Duration> backward);

/// What runs the plan, which decides the choices of a block. kSaved: a set of saved results; other values
/// that the backward half needs are recomputed once, as late as possible (Inductor's partitioner, our
/// executor). kCheckpoint: the whole block is recomputed, except ops whose results are saved
/// (`torch.utils.checkpoint`).
enum class PipelineExecutor { kSaved, kCheckpoint };

struct PipelineOptions {
  int stages = 2;  ///< devices
  int microbatches = 8;
  Bytes budget = kNoBudget;  ///< of each device
  Schedule schedule = Schedule::k1f1b;
  int chunks = 1;  ///< of each device; interleaved: at least 2
  PipelineExecutor executor = PipelineExecutor::kSaved;
  /// True: cuts only between numbered modules, as "layers.3". False: wherever a single value passes.
  bool whole_layers = true;
  /// Bytes of optimizer state for each byte of gradients, where the graph has no updates.
  int state_per_gradient = 0;
  /// Names of the graph inputs that come with each micro-batch. Empty: those that no update reads if the
  /// graph has updates, else none.
  std::vector<std::string> data = {};
};

/// Forward and backward ops of one graph that always stay in the same stage.
struct PipelineBlock {
  std::string name;  ///< the module of most of its ops
  int graph = 0;     ///< which of the graphs
  int curve = 0;     ///< equal blocks share their choices
  std::vector<OpId> forward, backward;
};

/// One way to run a block. Bytes are those of one micro-batch.
struct BlockChoice {
  Bytes saved;                 ///< from its forward half to its backward half, its received inputs included
  Bytes need;                  ///< peak over the steps of the block, `saved` included
  Duration extra;              ///< of the recomputation
  std::vector<int> first;      ///< steps of the forward half: positions in `forward`, then `backward`
  std::vector<int> second;     ///< the same for the backward half
  std::vector<int> saved_ops;  ///< positions in `forward` of ops whose results are saved
  bool as_a_whole = false;     ///< all but `saved_ops` is recomputed, and those results stay until then
};

/// Instructions for a block's executor: for `torch.utils.checkpoint`, which calls of each kind of op have
/// their results saved, numbered within the block's forward half.
struct BlockPolicy {
  std::string name;
  bool runs_again = false;  ///< false: nothing in the block is recomputed
  std::vector<std::pair<std::string, std::vector<int>>>
      saved;  ///< by kind of op, in the order of first calls
};

/// The choices that equal blocks share. The first recomputes nothing, the last saves least.
struct BlockCurve {
  Duration forward, backward;
  std::vector<BlockChoice> choices;  ///< falling bytes saved
};

/// The part of the model on one device, or one chunk of it.
struct PipelineStage {
  int device = 0, chunk = 0;
  int first = 0, last = 0;                 ///< blocks [first, last)
  int in_flight = 0;                       ///< micro-batches, at most
  Bytes held;                              ///< parameters, gradients and optimizer state
  Bytes saved;                             ///< by one micro-batch
  Bytes peak;                              ///< of the device, by the reference simulator
  Duration forward, backward, recomputed;  ///< of one micro-batch; `backward` without `recomputed`
  std::vector<int> choices;                ///< of each block
  Duration duration() const { return forward + backward + recomputed; }
};

/// Cuts and choices, and the time of a step with them.
struct PipelinePlan {
  std::vector<PipelineStage> stages;  ///< by virtual stage
  Duration slowest;                   ///< device: time for one micro-batch
  Duration duration;                  ///< of the whole step, without the optimizer
  double bubble = 0;
};

struct PipelineResult {
  /// `kOptimal`: no cuts between blocks with choices from the curves make the slowest device faster.
  /// `kInfeasible`: none is within the budget.
  Status status = Status::kUnknown;
  std::vector<PipelineBlock> blocks;
  std::vector<BlockCurve> curves;
  std::optional<PipelinePlan> plan;
  /// For comparison, if they fit: equal numbers of the commonest blocks in each stage, where all recompute
  /// everything (`uniform_full`), all make the one fastest choice (`uniform_same`), or each makes its own.
  std::optional<PipelinePlan> uniform_full, uniform_same, uniform_own;
  std::optional<Bytes> least_budget;  ///< the least budget that has a plan, if `budget` has none
  std::string reason;                 ///< why there is no plan, in one line
  std::optional<StoppedBy> stopped_by;
  double seconds = 0;
};

/// A training step of which there are several alike in a row.
struct PipelinePart {
  const Graph* graph = nullptr;
  int count = 1;
};

/// The fastest pipeline. Each graph is the training step of one micro-batch of a model or of a part of it;
/// the parts run in this sequence, and pass on what the next graph names as its micro-batch inputs. Updates
/// are left out, but their state counts as held. With k micro-batches in flight, the memory of a stage is k -
/// 1 times what its blocks save, plus the peak of one more; every returned stage is simulated as a graph with
/// k micro-batches. Cuts: the duration of a stage grows with every block, so crossings of two monotone
/// functions are searched, O(stages blocks log blocks) stages. Choices of a stage: Pareto-optimal labels
/// (bytes saved, peak, time), pruned by the linear relaxation of the budget. Both are exact over the choices
/// of the curves; for interleaved schedules the cuts are searched and not proved. Throws UsageError,
/// InputError for a graph that is no training step.
PipelineResult plan_pipeline(const std::vector<PipelinePart>& parts, const PipelineOptions& options,
                             Limits& limits);

/// The policies of all blocks of a stage.
std::vector<BlockPolicy> policies_of(const PipelineResult& result, const std::vector<PipelinePart>& parts,
                                     const PipelineStage& stage);

/// Both throw UsageError that lists the known names.
Schedule parse_schedule(std::string_view text);
PipelineExecutor parse_pipeline_executor(std::string_view text);

}  // namespace REMAT_API remat
