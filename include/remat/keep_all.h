// The reference for budgets in percent.
#pragma once

#include "remat/plan.h"

namespace remat {

/// The peak of `keep_all_plan`, resident inputs included. O(values + edges).
Bytes keep_all_peak(const Graph& graph);

}  // namespace remat
