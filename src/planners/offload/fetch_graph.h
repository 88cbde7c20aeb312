// The recomputation that is left where it is settled which values are on the host.
#pragma once

#include "planners/offload/script.h"
#include "remat/graph.h"

namespace remat::offload {

/// The graph with an op for each value that may be fetched. The op that made the value makes a mark of no
/// bytes, and the new op, which takes little time, reads the mark and makes the value: running that again is
/// a fetch. Planners that know no host plan it.
class FetchGraph {
 public:
  /// `price`: what a fetch costs, as a share of the time that its copy takes.
  FetchGraph(const Graph& graph, const IndexVector<ValueId, bool>& chosen, const Host& host, double price);

  const Graph& graph() const { return fetch_; }
  Plan plan_of(const Script& script) const;
  Script script_of(const Plan& plan) const;

 private:
  const Graph& original_;
  Graph fetch_;
  IndexVector<OpId, Item> item_;          ///< of each op of the new graph
  IndexVector<OpId, OpId> run_;           ///< of each op, the new one
  IndexVector<ValueId, OpId> fetch_run_;  ///< of each value, the op that fetches it, or none
};

}  // namespace remat::offload
