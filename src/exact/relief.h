// The walk from moment to moment: keep, run again or fetch back at the dearest step, then at the next one.
#pragma once

#include <functional>
#include <optional>

#include "exact/unrolled.h"
#include "remat/limits.h"

namespace remat {

/// Of a script on the way, with its peak; false ends the walk.
using SeenScript = std::function<bool(const Script& script, Bytes peak)>;

/// Of each choice: the nearest to the best, or more of them in the same time.
enum class Effort { kFull, kQuick };

/// The script after the best choice at one step of it, which `all` is unrolled from; nothing where none fits.
std::optional<Script> relieved_at(const Graph& graph, const Script& script, const Unrolled& all, OpId step,
                                  Bytes budget, const FetchPrices* prices, Limits& limits, Effort effort);

/// Again and again the best choice at the dearest step of what was chosen before, until the budget is met, no
/// choice meets it, peaks do not fall any more (with full effort: so slowly that twice the pace would not do)
/// or the limits are reached. `seen` gets every script on the way, the first one included. With prices,
/// values may be fetched too, each time for the price; that copies take time, and memory on their way, is
/// left to the prices.
void relieve(const Graph& graph, Script script, Bytes budget, const FetchPrices* prices, Limits& limits,
             Effort effort, const SeenScript& seen);

}  // namespace remat
