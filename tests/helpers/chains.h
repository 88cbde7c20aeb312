// Chains for tests of the planners that cut a graph into stages.
#pragma once

#include "planners/rotor/chain.h"
#include "remat/random.h"

namespace remat::testing {

/// Up to five stages, each with up to `most_options` ways to be saved.
rotor::Chain random_chain(Random& random, int most_options);

}  // namespace remat::testing
