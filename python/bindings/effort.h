// The plan store of this process, and options given from Python.
#pragma once

#include "bindings.h"
#include "remat/request.h"
#include "remat/store.h"

namespace remat::python {

/// The text of an option's value, as on the command line: the core parses both alike.
std::string option_text(nb::handle value);

/// The one store of this process.
PlanStore& plan_store();

}  // namespace remat::python
