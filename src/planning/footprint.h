// Plans whose footprint (an arena with its gaps, an allocator's segments) is within a budget: the footprint
// decides for which live bytes to plan.
#pragma once

#include <functional>
#include <string>

#include "base/numbers.h"
#include "remat/request.h"

namespace remat {

/// The graph with sizes rounded up by `round`. Throws UsageError if the sum of rounded sizes is not below
/// 2^62; `how` describes the rounding in the message.
Graph rounded_up(const Graph& graph, bool inputs_too, const std::string& how,
                 const std::function<Wide(Bytes)>& round);

/// What a plan really takes; never less than its live bytes.
struct Footprint {
  Graph rounded;    ///< the graph with rounded sizes
  PeakBound bound;  ///< on the footprint of every plan, checked before planning
  /// A quick upper estimate of a plan's footprint, for local search. May be empty.
  std::function<Bytes(const Plan&, const Simulation&, Limits&)> quick = {};
  /// Fills in `footprint`, and the layout or allocator peaks, for the plan of `result`.
  std::function<void(Answer&, Limits&)> measure;
};

/// Plans for fewer live bytes until the footprint is within the budget, then for more as long as it fits.
Answer plan_within(const Request& request, Footprint footprint, Limits& limits);

}  // namespace remat
