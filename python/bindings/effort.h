// The plans that this process knows, and options as Python gives them.
#pragma once

#include "bindings.h"
#include "remat/request.h"
#include "remat/store.h"

namespace remat::python {

/// Options reach the core as text, as on the command line.
std::string option_text(nb::handle value);

/// One for the process.
PlanStore& plan_store();

}  // namespace remat::python
