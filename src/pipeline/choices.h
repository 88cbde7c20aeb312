// The choices of a block: what it saves at which cost, each simulated.
#pragma once

#include "pipeline/part.h"
#include "remat/limits.h"

namespace remat::pipeline {

/// Most choices per block.
inline constexpr int kMostChoices = 64;

/// kSaved: the lower hull of time over bytes saved, by minimum cuts at the moment between the halves.
/// kCheckpoint: sets of ops whose times and bytes add up, the frontier of a knapsack, thinned out to
/// kMostChoices; and the block without recomputation, the only choice of a block that is no module. No choice
/// is dominated in bytes saved, peak and time.
BlockCurve make_curve(const Block& block, PipelineExecutor executor, int state, Limits& limits);

/// Blocks with the same number are equal up to names, or up to names and amounts.
struct Kinds {
  std::vector<int> kind, structure;
};
Kinds kinds_of(const std::vector<Block>& blocks, int state);

}  // namespace remat::pipeline
