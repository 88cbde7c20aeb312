// Settings of models by name, from Python.
#pragma once

#include "bindings.h"
#include "remat/generate.h"

namespace remat::python {

/// Settings as on the command line, with `_` for `-`. Throws UsageError that names the model's settings.
TrainingOptions training_options(const std::string& model, nb::dict settings);

}  // namespace remat::python
