// Planning with anything that makes a PlanResult.
#pragma once

#include <functional>

#include "bindings.h"
#include "effort.h"
#include "errors.h"

namespace remat::python {

/// A remat.PlanResult of what `run` finds for the objective "time", on a thread of its own, without the GIL.
nb::object plan_with(nb::handle_t<Graph> graph, nb::handle budget, const std::string& order,
                     const Effort& effort, nb::handle progress,
                     const std::function<PlanResult(const Problem&, Limits&)>& run);

}  // namespace remat::python
