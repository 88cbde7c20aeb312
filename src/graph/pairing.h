// Where the backward pass of a training step begins, given or derived.
#pragma once

#include <optional>

#include "remat/graph.h"

namespace remat {

/// Ops before `first_backward` are forward (the loss among them), the others backward (updates among them).
struct Pairing {
  OpId first_backward;
  bool derived = false;  ///< not from phases
};

/// From the phases where some op is `backward`: the first such op. Otherwise derived from the structure: each
/// backward op reads a forward value, so at the loss most values wait for a later reader. The boundary is the
/// place that the most values cross (the earliest of equals); it counts as one where at least two
/// values and an eighth of all that are made and read cross it, and nothing is returned otherwise. O(values +
/// edges).
std::optional<Pairing> find_pairing(const Graph& graph);

}  // namespace remat
