// What to keep across one moment, what to run again after it, and what to have on the host: a linear program,
// whose prices prove a bound in integers and whose solution a plan can be rounded from. docs/bounds.md tells
// it whole.
#pragma once

#include <vector>

#include "remat/graph.h"
#include "remat/host.h"
#include "remat/limits.h"

namespace remat {

/// Shares of the best choice of the relaxation; what is on the host is neither kept nor run again.
struct OffloadMoment {
  /// No plan in fixed order within the budget takes less beyond one run of each op.
  Duration bound;
  bool has_choice = false;  ///< the relaxation was solved, and the shares are of its optimum
  IndexVector<ValueId, double> kept, on_host;
  IndexVector<OpId, double> rerun;
};

/// At the first run of op `at` in fixed order. Stops once `limits` are reached with what was proved until
/// then.
OffloadMoment solve_offload(const Graph& graph, OpId at, Bytes budget, const Host& host, Limits& limits);

/// The same with whole choices, by a tree search: the best that was found within the limits, and no bound.
OffloadMoment solve_offload_whole(const Graph& graph, OpId at, Bytes budget, const Host& host,
                                  Limits& limits);

}  // namespace remat
