// Ruin and recreate (Schrimpf et al. 2000): what is taken out of a script, and what makes other cuts the
// cheapest.
#pragma once

#include "plan/script.h"
#include "remat/random.h"

namespace remat::lns {

/// The script without some of its reruns and fetches: mostly of one stretch of them, else of all.
Script ruined(const Graph& graph, const Script& script, Random& random);

/// Draws other durations for `shaken`, a copy of the graph.
void shake(const Graph& graph, Graph& shaken, Random& random);

}  // namespace remat::lns
