// The peak without recomputation: the reference for budgets in percent.
#pragma once

#include "remat/export.h"
#include "remat/plan.h"

namespace REMAT_API remat {

/// The peak of `keep_all_plan`, resident inputs included. O(values + edges).
Bytes keep_all_peak(const Graph& graph);

}  // namespace REMAT_API remat
