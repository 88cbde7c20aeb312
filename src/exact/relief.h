// A walk over moments: decides what to keep, rerun or fetch at the peak step, then at the next one.
#pragma once

#include <functional>
#include <optional>

#include "exact/unrolled.h"
#include "remat/limits.h"

namespace remat {

/// Called for every script of the walk, with its peak; returning false ends the walk.
using SeenScript = std::function<bool(const Script& script, Bytes peak)>;

/// kFull: near-optimal choices. kQuick: worse choices, but more of them in the same time.
enum class ReliefEffort { kFull, kQuick };

/// The script after the best choice at `step`; nothing if no choice fits. `all` is the unrolled script.
std::optional<Script> relieved_at(const Graph& graph, const Script& script, const Unrolled& all, OpId step,
                                  Bytes budget, const FetchPrices* prices, Limits& limits,
                                  ReliefEffort effort);

/// Repeats the best choice at the peak step of the current script until the budget is met, no choice fits,
/// peaks no longer fall (with full effort: fall too slowly even at twice the pace) or the limits are reached.
/// `seen` gets every script of the walk, the first included. With prices, values may also be fetched, at that
/// price; the prices have to account for the time of copies and their memory.
void relieve(const Graph& graph, Script script, Bytes budget, const FetchPrices* prices, Limits& limits,
             ReliefEffort effort, const SeenScript& seen);

}  // namespace remat
