// Scripts from plans and fetched values.
#pragma once

#include "plan/script.h"

namespace remat::offload {

/// The steps, and each chosen value fetched across the longest gap in time between uses of one instance.
Script script_of(const Graph& graph, const Plan& steps, const IndexVector<ValueId, bool>& chosen);

/// The values that are fetched.
IndexVector<ValueId, bool> fetched_values(const Graph& graph, const Script& script);

}  // namespace remat::offload
