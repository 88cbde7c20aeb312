// Plans whose footprint is within a budget: an arena with its gaps, an allocator's segments. The footprint
// says by how much a plan's live bytes must shrink.
#pragma once

#include <functional>
#include <string>

#include "base/numbers.h"
#include "remat/request.h"

namespace remat {

/// The graph with sizes as the footprint holds them. Throws UsageError where the sum of those that `round`
/// was asked for is not below 2^62; `how` says how they were rounded.
Graph rounded_up(const Graph& graph, bool inputs_too, const std::string& how,
                 const std::function<Wide(Bytes)>& round);

/// What plans take beside their live bytes, which no footprint is below.
struct Footprint {
  Graph rounded;    ///< the graph, sizes as the footprint holds them
  PeakBound bound;  ///< that no footprint is below, beside the bounds of live bytes; asked before planning
  /// What a plan takes, quickly had and never too little: local search goes by it. May be empty.
  std::function<Bytes(const Plan&, const Simulation&, Limits&)> quick = {};
  /// Fills in `takes`, and what is known beside it, for the plan of `result`.
  std::function<void(Answer&, Limits&)> measure;
};

/// Plans for a request until one has a footprint within the budget, for more live bytes as long as it fits.
Answer plan_within(const Request& request, Footprint footprint, Limits& limits);

}  // namespace remat
