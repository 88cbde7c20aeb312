// From a tensor program to the graph that planners take.
#pragma once

#include "generate/program.h"
#include "remat/generate.h"

namespace remat::generate {

struct LoweringOptions {
  std::string name;
  bool by_layer = false;            ///< consecutive ops of one layer and phase become one op
  bool random_recomputable = true;  ///< false: ops that draw random numbers must not run twice
  std::optional<Device> device;     ///< none: every op takes one unit
};

/// Drops ops that no kept tensor depends on. In kernel programs, reshapes share their input's storage and are
/// no ops. Updates of parameters are never recomputed.
Graph lower(const Program& program, const LoweringOptions& options);

}  // namespace remat::generate
