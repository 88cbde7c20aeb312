// A training graph as a chain of stages, each with a forward and a backward half.
#pragma once

#include <vector>

#include "graph/pairing.h"
#include "planners/rotor/chain.h"
#include "remat/plan.h"

namespace remat::rotor {

/// Stage i runs the forward ops of its piece of the graph's order, and the backward ops that need what these
/// made. The forward pass is cut where the outputs of a single op wait for later forward ops. Values that do
/// not fit are held from their first run to their last reader: skips longer than the view allows, values that
/// a backward half reads too late, values of ops that must not run twice, and kept ones.
///
///   f0 f1 f2 | f3 f4 | f5 ... loss | b5 | b4 b3 | b2 b1 b0
///   stage 0    1       2             2    1       0
struct ChainView {
  struct Half {
    std::vector<OpId> forward;    ///< all ops of the forward half, in the graph's order
    std::vector<OpId> pass;       ///< those that another run needs which saves nothing
    std::vector<OpId> save;       ///< those that another run needs which saves the stage
    std::vector<OpId> backward;   ///< in the graph's order
    std::vector<ValueId> output;  ///< what the next stage starts from
    std::vector<ValueId> rest;    ///< what a saved stage holds beside it
  };
  std::vector<Half> halves;
  Chain chain;  ///< without the resident inputs
  std::int64_t held_values = 0;
};

/// Views of a graph, by growing number of stages, none where it cannot be cut in two. They differ in which
/// skips are held (none, then the longest ones, as long as that gives a fifth more stages) and in whether the
/// forward pass is cut wherever it can be, or only at values that a backward op reads as well, so that
/// keeping one costs nothing extra. At most `most_stages`: cuts are thinned out evenly. Some O(values log
/// values + edges) each.
std::vector<ChainView> chain_views(const Graph& graph, const Pairing& pairing, std::int64_t most_stages);

/// True if there is any view; cheaper than describing it.
bool has_chain_view(const Graph& graph, const Pairing& pairing, std::int64_t most_stages);

/// The plan of a schedule: valid in both orders, first runs in the graph's order.
Plan plan_of(const Graph& graph, const ChainView& view, const std::vector<Action>& actions);

}  // namespace remat::rotor
