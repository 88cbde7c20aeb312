// When the chosen values go to the host and come back, for steps that are given.
#pragma once

#include <vector>

#include "remat/plan.h"

namespace remat::offload {

/// The steps with copies of the chosen values, each across the longest gap between two uses of one instance:
/// out from the end of the step that makes it, back as late as its next reader allows, both channels first
/// in, first out. Where that leaves a step over the budget, copies out are waited for earlier and copies in
/// issued later, those first that stall least. Values without a gap stay where they are. The plan is valid,
/// and may be over the budget.
Plan with_copies(const Graph& graph, const Plan& steps, const IndexVector<ValueId, bool>& chosen,
                 Bytes budget, const Host& host);

}  // namespace remat::offload
