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

/// A piece of memory that is needed in the half-open interval [first, end), first < end. The unit of time is
/// the caller's own; for a plan it is the step.
struct Buffer {
  std::int64_t first = 0;
  std::int64_t end = 0;
  Bytes size;
  friend bool operator==(const Buffer&, const Buffer&) = default;
};

/// What is asked. Every offset is a multiple of `alignment`, and a buffer takes up its size rounded up to it,
/// so the arena is a multiple of it too. With a capacity any layout within it will do; without one the
/// smallest arena is sought.
struct LayoutProblem {
  IndexVector<BufferId, Buffer> buffers;
  std::int64_t alignment = 1;
  std::optional<Bytes> capacity;
};

/// Seed, and one switch for each technique that only prunes or speeds up. The answer is right without any.
struct LayoutOptions {
  std::uint64_t seed = 0;
  bool first_fit = true;  ///< starts from first fit; off: the search finds every layout by itself
  bool sections = true;   ///< parts of time that no buffer connects are searched apart
  bool dominance = true;  ///< no gap is left that a buffer still to be placed would fill
  bool symmetry = true;   ///< stacked buffers with equal lives only in one sequence
  bool crossing = true;   ///< where one set of buffers follows another, sums of sizes must meet
  bool ejection = true;   ///< ejection chains lower what is found; off: the search alone
  bool closest = false;   ///< where the capacity is out of reach, how near a layout comes to it counts
  /// Empty, or a layout to start from: an offset for each buffer, below 0 where nothing is known. First fit
  /// in its sequence, the rest last, is no higher than a whole layout. Not for more than 20,000 buffers.
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

/// The shared entry point: first fit by several sequences, then search. Anytime: with a limit reached the
/// best layout found so far comes back, which exists from the first moment on. With a work limit and no time
/// limit the same layout comes out on every machine. What is returned is confirmed by `validate_layout`.
/// Throws UsageError for an alignment below 1, InputError for buffers whose sum does not fit into 62 bits.
LayoutResult make_layout(const LayoutProblem& problem, const LayoutOptions& options, Limits& limits);

/// First fit alone, within about `units` of work: the layout that is quickly had. O(n log n) at least.
LayoutResult quick_layout(const LayoutProblem& problem, std::int64_t units);

/// The most bytes that live at one time, sizes rounded up to the alignment. No arena is smaller.
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

/// What a plan needs memory for: an instance of `value`, or the workspace of a step.
struct PlanPiece {
  ValueId value;    ///< none for a workspace
  Buffer life;      ///< the steps that need it, and its bytes
  BufferId buffer;  ///< the one that holds it
  friend bool operator==(const PlanPiece&, const PlanPiece&) = default;
};

/// The buffers of a plan: of its instances and of the workspaces of its steps, those of no bytes left out. An
/// output that is written over an input of the same bytes (`overwrites`) is in the buffer of that, which
/// lives on; with other bytes it has a buffer of its own. The graph's inputs are resident and not laid out:
/// their bytes count beside the pool of all buffers.
struct PlanBuffers {
  LayoutProblem problem;
  std::vector<PlanPiece> pieces;  ///< instances by the step that makes them, then workspaces
  Bytes resident;
};
PlanBuffers plan_buffers(const Graph& graph, const Plan& plan, std::int64_t alignment);

}  // namespace REMAT_API remat
