// Exact: the fastest choices for the blocks of one device within its memory.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "remat/limits.h"
#include "remat/pipeline.h"

namespace remat::pipeline {

/// One block on the device, in the sequence of the model.
struct StageBlock {
  const BlockCurve* curve;
  int in_flight;  ///< micro-batches that wait for their backward half, the running one included
};

struct StageChoices {
  Duration extra;
  std::vector<int> choices;  ///< of each block
  bool proved = true;        ///< none is faster
};

/// With o_b the choice of block b, k_b the micro-batches in flight and e_b = need - saved of o_b:
///   least sum of extra(o_b), where for every b   sum of k_c saved(o_c) - rest_b + e_b <= room.
/// rest_b is what the running micro-batch does not hold yet, or no longer holds, when b runs: saved(o_c) of
/// the blocks c after b. `joined`: all blocks are one chunk; else rest_b is taken as 0, which overestimates
/// memory by it. Nothing if no choices fit. Proved unless the limits are reached.
///
/// Dynamic programming from the last block to the first over Pareto-optimal labels (bytes, working bytes,
/// time). A label is dropped if its time plus the relaxation of the rest, at the price per byte of the linear
/// relaxation of the whole, is above a threshold, which doubles until a solution is below it.
std::optional<StageChoices> choose(std::span<const StageBlock> blocks, Bytes room, bool joined,
                                   Limits& limits);

}  // namespace remat::pipeline
