// The fastest choices for the blocks of one device within its memory: exact.
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
/// rest_b is what the running micro-batch does not hold yet, or any more, when b runs: saved(o_c) of the
/// blocks c after b. `joined` says that all blocks are one chunk; else rest_b is taken for 0, which is too
/// much by that. Nothing where no choices fit. Proved unless the limits are reached.
///
/// From the last block to the first, labels (bytes, working bytes, time), none beaten in all three. A label
/// is dropped where its time and the relaxation of the rest, at the price per byte that the linear relaxation
/// of the whole has, are above a threshold; that doubles until something is found below it.
std::optional<StageChoices> choose(std::span<const StageBlock> blocks, Bytes room, bool joined,
                                   Limits& limits);

}  // namespace remat::pipeline
