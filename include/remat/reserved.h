// Planning for a device with PyTorch's caching allocator: the budget bounds the memory that the allocator
// reserves, not only the live bytes. docs/allocator.md.
#pragma once

#include "remat/allocator.h"
#include "remat/export.h"
#include "remat/planner.h"

namespace REMAT_API remat {

/// A plan and the memory that the allocator takes for it.
struct ReservedPlan {
  /// As from `make_plan` for the budget of the problem, with the reserved peak in place of the peak: optimal
  /// and feasible only where that is within it. Its bounds hold for every plan whose reserved peak is.
  PlanResult result;
  AllocatorPeaks peaks;  ///< of the plan, if there is one
  int plans = 0;         ///< plans that were run through the allocator

  /// Reserved bytes once a further run reserves nothing new; kNoBudget if that never happens.
  Bytes footprint() const { return peaks.is_steady ? peaks.reserved : kNoBudget; }
};

/// Plans with sizes rounded up as the allocator does, and runs the plan through it. If it reserves more than
/// the budget, plans again for fewer live bytes, then for more as long as it fits. Only for objective time
/// and without a host. Throws UsageError as `make_plan` does.
ReservedPlan make_reserved_plan(const Problem& problem, std::string_view planner, const PlanOptions& options,
                                const AllocatorConfig& allocator, Limits& limits);

}  // namespace REMAT_API remat
