// Path decompositions and spines (Kumar et al. 2019, section 5 and appendix A.1).
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "decomposition/tree_decomposition.h"

namespace remat::decomposition {

/// Bags in path order; neighbouring bags are the tree edges.
using PathDecomposition = std::vector<Bag>;

/// Size of the largest bag less one; -1 where there is no bag.
std::int32_t width(const PathDecomposition& path);
/// The first broken property, as one line.
std::optional<std::string> find_defect(const Adjacency& graph, const PathDecomposition& path);

/// Places one vertex after the other, always the one that leaves the fewest placed vertices with unplaced
/// neighbours (ties: next to the vertex that waits longest). The narrowest result of several starts. No bag
/// contains a neighbouring one. O(edges log vertices) for each start.
PathDecomposition greedy_path(const Adjacency& graph, Limits& limits);

/// A directed acyclic graph: row v lists what v points to, ascending.
using Arcs = std::vector<std::vector<Vertex>>;

/// A topological order in which an arc may be added from each vertex to the next, and a path decomposition
/// that covers these arcs as well.
struct Spine {
  std::vector<Vertex> order;
  PathDecomposition path;
};
/// Algorithm 2: depth first, the successors that end first to the left; the end of each branch is stretched
/// to the right until it meets the next. Of width at most 2 width(path) + 2. `path` covers the arcs.
Spine add_spine(const Arcs& arcs, const PathDecomposition& path, Limits& limits);

}  // namespace remat::decomposition
