// From live bytes to one arena: an offset for every buffer, so that buffers that live at the same time never
// overlap. docs/layout.md has the methods and the proofs.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "remat/export.h"
#include "remat/graph.h"
#include "remat/ids.h"
#include "remat/limits.h"
#include "remat/plan.h"
#include "remat/planner.h"
#include "remat/quantity.h"

namespace REMAT_API remat {

using BufferId = Id<struct BufferTag>;

/// Memory needed in the half-open interval [first, end), first < end. The unit of time is up to the caller;
/// for a plan it is the step.
struct Buffer {
  std::int64_t first = 0;
  std::int64_t end = 0;
  Bytes size;
  friend bool operator==(const Buffer&, const Buffer&) = default;
};

/// Every offset is a multiple of `alignment`, and a buffer occupies its size rounded up to it, so the arena
/// is a multiple of it too. With a capacity, any layout within it is an answer; without one, the smallest
/// arena is sought.
struct LayoutProblem {
  IndexVector<BufferId, Buffer> buffers;
  std::int64_t alignment = 1;
  std::optional<Bytes> capacity;
};

/// Seed, and a switch for each technique that only prunes or speeds up: results are valid with any switches.
struct LayoutOptions {
  std::uint64_t seed = 0;
  bool first_fit = true;  ///< start from first fit; off: the search finds every layout itself
  bool sections = true;   ///< parts of time that no buffer connects are searched separately
  bool dominance = true;  ///< leave no gap that an unplaced buffer would fill
  bool symmetry = true;   ///< stack buffers with equal live ranges in one sequence only
  bool crossing = true;   ///< prune by sums of sizes where one set of buffers follows another
  bool ejection = true;   ///< improve layouts by ejection chains; off: by the search alone
  bool closest = false;   ///< over the capacity, prefer layouts nearer to it
  /// Empty, or a layout to start from: an offset for each buffer, negative if unknown. First fit in the
  /// sequence of these offsets, unknown ones last, is no higher than the start if that is complete. Ignored
  /// above 20,000 buffers.
  std::vector<Bytes> start = {};
};

/// A lower bound on the arena, with the name of the argument that proves it.
struct LayoutBound {
  std::string argument;  ///< "live_peak": the most live bytes at one time; "search": nothing smaller exists
  Bytes arena;
};

struct LayoutResult {
  /// Optimal: no smaller arena exists. Feasible: a layout (within the capacity, where there is one).
  /// Infeasible: proved that none fits the capacity. Unknown: none found that fits, nothing proved.
  Status status = Status::kUnknown;
  StoppedBy stopped_by = StoppedBy::kTarget;
  /// The best layout found; over the capacity where `status` is infeasible or unknown.
  IndexVector<BufferId, Bytes> offsets;
  Bytes arena;
  LayoutBound bound;
  Counters counters;
  double seconds = 0;
};

/// The shared entry point: first fit by several sequences, then search. Anytime: when a limit is reached it
/// returns the best layout so far, and there always is one. Deterministic with a work limit and no time
/// limit. The result is confirmed by `validate_layout`. Throws UsageError for an alignment below 1,
/// InputError for buffers whose sum does not fit into 62 bits.
LayoutResult make_layout(const LayoutProblem& problem, const LayoutOptions& options, Limits& limits);

/// First fit alone, within about `units` of work. At least O(n log n).
LayoutResult quick_layout(const LayoutProblem& problem, std::int64_t units);

/// The most bytes alive at one time, sizes rounded up to the alignment. No arena is smaller.
Bytes live_peak(const LayoutProblem& problem);

/// The smallest arena that holds buffers at these offsets, sizes rounded up to the alignment.
Bytes arena_of(const LayoutProblem& problem, std::span<const Bytes> offsets);

/// The rules of a layout, in the sequence in which the validator reports them.
enum class LayoutRule {
  kEveryBuffer,  ///< one offset for each buffer
  kInRange,      ///< offsets at least 0, ends within the arena
  kAligned,      ///< offsets are multiples of the alignment
  kDisjoint,     ///< buffers that live at the same time do not overlap
};
std::string_view to_string(LayoutRule rule);

/// The first broken rule, with place and numbers in `message` (one line).
struct LayoutViolation {
  LayoutRule rule;
  BufferId buffer;  ///< none where the rule is about the whole layout
  std::string message;
};

/// The first broken rule, or nothing. Independent of everything that makes layouts. O(n log n) for layouts
/// that keep the rules.
std::optional<LayoutViolation> validate_layout(const LayoutProblem& problem, std::span<const Bytes> offsets,
                                               Bytes arena);

/// An instance of `value` or the workspace of a step, and the buffer that holds it.
struct PlanPiece {
  ValueId value;    ///< none for a workspace
  Buffer life;      ///< its live range in steps, and its bytes
  BufferId buffer;  ///< the one that holds it
  friend bool operator==(const PlanPiece&, const PlanPiece&) = default;
};

/// The buffers of a plan: of its instances and of the workspaces of its steps, except empty ones. An output
/// that is written over an input of the same size (`overwrites`) extends the live range of the input's
/// buffer; with another size it has a buffer of its own. The graph's inputs are resident and not laid out:
/// their bytes are added to the pool of all buffers.
struct PlanBuffers {
  LayoutProblem problem;
  std::vector<PlanPiece> pieces;  ///< instances by the step that makes them, then workspaces
  Bytes resident;
};
PlanBuffers plan_buffers(const Graph& graph, const Plan& plan, std::int64_t alignment);

}  // namespace REMAT_API remat
