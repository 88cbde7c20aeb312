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
/// backward op reads a forward value, so at the loss most values wait for a later reader, and the one made
/// first is read last. The boundary is the place that the most values cross (the earliest of equals), or the
/// op after it where that op is a loss: kept, and read by nobody. It counts where
/// - at least two values and an eighth of all that are made and read cross it, and
/// - of two crossing values the earlier one is read later in at least 0.8 + 0.3 / sqrt(number of values) of
/// all
///   pairs: 0.95 to 1 on training steps, about a half on random graphs.
/// Updates of parameters at the end are left out. Exact on captures from PyTorch; where no loss op shows, up
/// to a few ops after the first backward op. O(values log values + edges).
std::optional<Pairing> find_pairing(const Graph& graph);

}  // namespace remat
