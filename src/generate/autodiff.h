// Reverse-mode differentiation: appends the backward half of a program.
#pragma once

#include <vector>

#include "generate/program.h"

namespace remat::generate {

/// Appends ops that compute the gradient of the scalar `loss` with respect to each of the program's
/// parameters, in the same order; none where the loss does not depend on one. Backward ops stand in the
/// reverse order of their forward ops, in their modules and layers, and name them.
std::vector<Tensor> differentiate(Program& program, Tensor loss);

}  // namespace remat::generate
