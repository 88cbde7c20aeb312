// A walk over moments at which memory is scarce: the candidates for bounds over several moments.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "plan/script.h"
#include "remat/graph.h"
#include "remat/limits.h"

namespace remat {

/// A first run, and the extra duration that brings the script within the budget there, all else unchanged.
struct Repair {
  OpId at;  ///< none: the script is within the budget
  Duration extra;
};

/// The first run (with the reruns just before it) at which bringing the script within the budget costs most,
/// by `retention` on the unrolled script. Skips the ops in `excluded`.
Repair dearest_repair(const Graph& graph, const Script& script, Bytes budget, std::span<const OpId> excluded,
                      Limits& limits);

/// The walk of `relieve` from keep-all, at the costliest repair in place of the peak: up to `most` distinct
/// first runs.
std::vector<Repair> repairs_in_turn(const Graph& graph, Bytes budget, std::int64_t most, Limits& limits);

}  // namespace remat
