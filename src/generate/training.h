// From a forward program to a training step.
#pragma once

#include "generate/program.h"
#include "remat/generate.h"

namespace remat::generate {

/// Appends the backward half, and the update of every parameter where there is an optimizer. Kept: the
/// loss, and the gradients or the new parameters and moments.
void finish_training(Program& program, Tensor loss, Optimizer optimizer);

}  // namespace remat::generate
