// The recomputation problem that remains once the values on the host are chosen.
#pragma once

#include "planners/offload/script.h"
#include "remat/graph.h"

namespace remat::offload {

/// The graph with an extra op for each value that may be fetched. The op that made the value now makes a
/// token of 0 bytes, and the extra op, which takes little time, reads the token and makes the value:
/// rerunning it is a fetch. Planners without support for hosts can plan this graph.
class FetchGraph {
 public:
  /// `price`: cost of a fetch, as a share of its copy's time.
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
