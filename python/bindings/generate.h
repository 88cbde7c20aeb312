// Models by name, as Python asks for them.
#pragma once

#include "bindings.h"
#include "remat/generate.h"

namespace remat::python {

/// Settings as on the command line, with `_` for `-`. Throws UsageError naming those that the model has.
TrainingOptions training_options(const std::string& model, nb::dict settings);

}  // namespace remat::python
