// Pipelines: where to cut a training step into stages, and what each stage recomputes within its own budget.
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

/// In which sequence each device takes its turns. Interleaved: as Megatron-LM does it, with micro-batches a
/// multiple of the devices. Throws UsageError.
std::vector<std::vector<Turn>> schedule_turns(Schedule schedule, int devices, int chunks, int microbatches);

/// Of each virtual stage, how many micro-batches at most have begun their forward half and not ended their
/// backward half.
std::vector<int> most_in_flight(const std::vector<std::vector<Turn>>& turns, int chunks);

/// When each turn happens where it begins as soon as its device and its inputs are there.
struct ScheduleTimes {
  Duration duration;                         ///< until the last device is done
  std::vector<Duration> busy;                ///< of each device
  std::vector<std::vector<TimeSpan>> turns;  ///< as in the sequence that was timed
  double bubble() const;                     ///< share of the devices' time in which they wait
};

/// Durations of the halves by virtual stage. A forward half waits for that of the virtual stage before, a
/// backward half for that of the one after it, the last one for its own forward half. Sending takes no time.
/// Throws UsageError for a sequence that waits for itself.
ScheduleTimes time_schedule(const std::vector<std::vector<Turn>>& turns, std::span<const Duration> forward,
                            std::span<const Duration> backward);

/// What may carry the plan out, and so which choices a block has.
/// kSaved: a set of saved results; what else the backward half needs runs again, once, as late as possible
/// (Inductor's partitioner, our executor). kCheckpoint: the block runs again as a whole but for the ops whose
/// results are saved (`torch.utils.checkpoint`).
enum class PipelineExecutor { kSaved, kCheckpoint };

struct PipelineOptions {
  int stages = 2;  ///< devices
  int microbatches = 8;
  Bytes budget = kNoBudget;  ///< of each device
  Schedule schedule = Schedule::k1f1b;
  int chunks = 1;  ///< of each device; interleaved: at least 2
  PipelineExecutor executor = PipelineExecutor::kSaved;
  /// Cuts between modules that are numbered, "layers.3" and "layers.4", alone; else wherever one value
  /// passes.
  bool whole_layers = true;
  /// Bytes of optimizer state for each byte of gradients, where the graph has no updates.
  int state_per_gradient = 0;
  /// Graph inputs by name that come with each micro-batch; empty: those that no update reads, where the graph
  /// has updates, else none.
  std::vector<std::string> data = {};
};

/// A part of the training steps that is never cut: ops of one of the graphs, forward and backward.
struct PipelineBlock {
  std::string name;  ///< the module that most of it belongs to
  int graph = 0;     ///< which of the graphs
  int curve = 0;     ///< blocks that are alike share their choices
  std::vector<OpId> forward, backward;
};

/// One way to run a block. Bytes are those of one micro-batch.
struct BlockChoice {
  Bytes saved;                 ///< held from its forward half to its backward half, what it receives included
  Bytes need;                  ///< most at any step of the block, what is saved included
  Duration extra;              ///< of what runs again
  std::vector<int> first;      ///< steps of the forward half: positions in `forward`, then `backward`
  std::vector<int> second;     ///< and of the backward half
  std::vector<int> saved_ops;  ///< positions in `forward` of ops whose results are saved
  bool as_a_whole = false;     ///< `saved_ops` are all that does not run again, and stay until then
};

/// What a block's executor is told: for `torch.utils.checkpoint` the calls of ops whose results it saves,
/// each counted within the block's forward half among those of its kind.
struct BlockPolicy {
  std::string name;
  bool runs_again = false;  ///< false: it is left as it is
  std::vector<std::pair<std::string, std::vector<int>>>
      saved;  ///< by kind of op, in the order of first calls
};

/// What is alike in several blocks. The first choice recomputes nothing, the last one saves least.
struct BlockCurve {
  Duration forward, backward;
  std::vector<BlockChoice> choices;  ///< falling bytes saved
};

/// What one device holds, or one of its chunks.
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

/// Cuts and choices, and what a step then takes.
struct PipelinePlan {
  std::vector<PipelineStage> stages;  ///< by virtual stage
  Duration slowest;                   ///< device: time for one micro-batch
  Duration duration;                  ///< of the whole step, without the optimizer
  double bubble = 0;
};

struct PipelineResult {
  /// `kOptimal`: no cuts between blocks and choices of the curves make the slowest device faster.
  /// `kInfeasible`: none fit.
  Status status = Status::kUnknown;
  std::vector<PipelineBlock> blocks;
  std::vector<BlockCurve> curves;
  std::optional<PipelinePlan> plan;
  /// Beside it, where they fit: as many blocks of the commonest structure in each stage, with all that
  /// recompute everything; with the one choice for all that is fastest; with choices of their own.
  std::optional<PipelinePlan> uniform_full, uniform_same, uniform_own;
  std::optional<Bytes> least_budget;  ///< that has a plan, where `budget` has none
  std::string reason;                 ///< one line that says why there is none
  std::optional<StoppedBy> stopped_by;
  double seconds = 0;
};

/// A training step of which there are several alike in a row.
struct PipelinePart {
  const Graph* graph = nullptr;
  int count = 1;
};

/// The fastest pipeline. Each graph is the training step of one micro-batch of a model, or of a part of it;
/// all of them follow each other. What passes from one graph to the next is what each says comes with a
/// micro-batch. Updates are left out, their state is held. Of a stage in which k micro-batches are in flight,
/// the memory is k - 1 times what its blocks save, and the highest step of one more; every stage that is
/// returned is simulated as a graph with k micro-batches. Cuts: the slowest stage is a bottleneck that grows
/// with every block, so crossings of two monotone functions are looked for, O(stages blocks log blocks)
/// stages; choices of a stage: labels (bytes saved, bytes at the highest step, time) of which none is beaten
/// in all three, pruned by the linear relaxation of the budget. Both are exact over the choices of the
/// curves; interleaved the cuts are searched and not proved. Throws UsageError, InputError for a graph that
/// is no training step.
PipelineResult plan_pipeline(const std::vector<PipelinePart>& parts, const PipelineOptions& options,
                             Limits& limits);

/// Of each block of a stage.
std::vector<BlockPolicy> policies_of(const PipelineResult& result, const std::vector<PipelinePart>& parts,
                                     const PipelineStage& stage);

/// Throw UsageError with the words that are known.
Schedule parse_schedule(std::string_view text);
PipelineExecutor parse_pipeline_executor(std::string_view text);

}  // namespace REMAT_API remat
