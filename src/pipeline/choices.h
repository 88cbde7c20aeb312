// What a block may save, and what that costs: points of its curve, each simulated.
#pragma once

#include "pipeline/part.h"
#include "remat/limits.h"

namespace remat::pipeline {

/// At most so many choices a block.
inline constexpr int kMostChoices = 64;

/// kSaved: the lower hull of time over bytes saved, a minimum cut each at the moment between the halves.
/// kCheckpoint: sets of ops whose times and bytes add up, a knapsack whose frontier is whole unless it is cut
/// to kMostChoices; and the block left alone, which is all that a
/// block that is no module can do. Of choices, none is beaten in bytes saved, in the highest step
/// and in time.
BlockCurve make_curve(const Block& block, PipelineExecutor executor, int state, Limits& limits);

/// Blocks with the same number of each are alike in everything but names, or but names and amounts.
struct Kinds {
  std::vector<int> kind, structure;
};
Kinds kinds_of(const std::vector<Block>& blocks, int state);

}  // namespace remat::pipeline
