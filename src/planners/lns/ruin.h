// Ruin and recreate (Schrimpf et al. 2000): removes parts of a script, and perturbs durations so that other
// cuts become the cheapest.
#pragma once

#include "plan/script.h"
#include "remat/random.h"

namespace remat::lns {

/// The script without some of its reruns and fetches: mostly those of one stretch, else from anywhere.
Script ruined(const Graph& graph, const Script& script, Random& random);

/// Draws new durations for `shaken`, a copy of the graph.
void shake(const Graph& graph, Graph& shaken, Random& random);

}  // namespace remat::lns
