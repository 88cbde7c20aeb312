// Canonical strategies (Kusumoto et al. 2019, section 3): cut the forward graph by an increasing sequence of
// lower sets, keep the values on the boundaries, compute each part again when the backward pass comes to it.
#pragma once

#include <cstdint>
#include <vector>

#include "graph/pairing.h"
#include "remat/plan.h"

namespace remat::canonical {

/// The forward ops as the paper's graph: nodes 0 ... n - 1 in the graph's order, one size and time each.
struct ForwardGraph {
  std::vector<std::vector<std::int32_t>> before, after;  ///< ascending
  std::vector<std::int64_t> bytes;                       ///< outputs that somebody reads
  std::vector<std::int64_t> time;
  std::size_t size() const { return bytes.size(); }
};
ForwardGraph forward_graph(const Graph& graph, const Pairing& pairing);

/// part[v] is the part (0, 1, ...) of forward op v; parts must be closed: no edge runs to an earlier part.
/// Forward values that no later part reads and that their own part can make again are dropped after the
/// forward pass, except those of the last part; each part is run again before the first backward op that
/// reads one of them. Valid in fixed order.
Plan plan_for_parts(const Graph& graph, const Pairing& pairing, const std::vector<std::int32_t>& part);

/// Peak in bytes by the formula of section 3, which knows no liveness: what earlier parts keep, a part twice
/// (values and gradients), and what the gradients of later nodes next to it need; the largest number where it
/// leaves 64 bits. O(nodes + edges).
std::int64_t formula_peak(const ForwardGraph& graph, const std::vector<std::int32_t>& part);

}  // namespace remat::canonical
