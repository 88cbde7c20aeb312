// Moments that bind one after the other: where bounds of several moments begin.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "plan/script.h"
#include "remat/graph.h"
#include "remat/limits.h"

namespace remat {

/// A first run, and what the script would have to take longer to be within the budget there, all else left as
/// it is.
struct Repair {
  OpId at;  ///< none: the script is within the budget
  Duration extra;
};

/// The first run at which, or at the reruns just before which, the script is dearest to bring within the
/// budget, by `retention` on the unrolled script. `but` are not looked at.
Repair dearest_repair(const Graph& graph, const Script& script, Bytes budget, std::span<const OpId> but,
                      Limits& limits);

/// The walk of `relieve` from keep-all on, with the dearest repair in place of the dearest step: up to `most`
/// first runs, none twice.
std::vector<Repair> repairs_in_turn(const Graph& graph, Bytes budget, std::int64_t most, Limits& limits);

}  // namespace remat
