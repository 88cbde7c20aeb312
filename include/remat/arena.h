// Planning for one arena: the budget bounds the arena that holds every buffer at a fixed offset, not only the
// live bytes. docs/layout.md has the method and its cost.
#pragma once

#include <cstdint>

#include "remat/export.h"
#include "remat/layout.h"
#include "remat/planner.h"

namespace REMAT_API remat {

/// A plan and the layout of its buffers.
struct ArenaPlan {
  /// As from `make_plan` for the budget of the problem, with the arena in place of the peak: optimal and
  /// feasible only where the arena is within it. Its bounds hold for every plan whose arena is.
  PlanResult result;
  PlanBuffers buffers;  ///< of the plan, if there is one
  LayoutResult layout;  ///< of `buffers`, the best found
  int plans = 0;        ///< plans that were laid out

  /// Graph inputs and the pool of all buffers.
  Bytes arena() const { return buffers.resident + layout.arena; }
  Bytes footprint() const { return arena(); }
};

/// Plans with sizes rounded up to the alignment, as the arena holds them, and lays the plan out. If the arena
/// exceeds the budget, plans again for fewer live bytes, then for more as long as it fits. Only for objective
/// time and without a host. Throws UsageError as `make_plan` and `make_layout` do.
ArenaPlan make_arena_plan(const Problem& problem, std::string_view planner, const PlanOptions& options,
                          std::int64_t alignment, Limits& limits);

/// The layout of a plan after a few milliseconds of work, the same on every machine.
LayoutResult glance_layout(const LayoutProblem& problem);

}  // namespace REMAT_API remat
