// Random tiny graphs with every feature of the model, sizes and durations up to the limits.
#pragma once

#include "differential/exact.h"
#include "remat/graph.h"
#include "remat/random.h"

namespace remat::differential {

/// At most 8 ops that make at most 9 values. Ops have none, one, two or three outputs, workspaces, soft
/// dependencies; some must not run twice; graph inputs may be kept; phases may name a backward pass. Sizes
/// and durations each come from one of several distributions: small, all equal, mostly zero, many digits,
/// sums just below the limit of 2^62.
exact::Graph random_tiny(Random& random);

/// The same graph for the library.
Graph built(const exact::Graph& tiny);

}  // namespace remat::differential
