// Tree decompositions of sparse graphs: elimination orders, bags and tree, reduction, separators, validator.
// Terms as in Kumar et al. 2019, section 2.2: bags cover every vertex and every edge, and the bags that hold
// a vertex are connected in the tree. Width is the largest bag less one.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/numbers.h"
#include "remat/graph.h"
#include "remat/limits.h"

namespace remat::decomposition {

using Vertex = std::int32_t;
using Bag = std::vector<Vertex>;  ///< ascending

/// Row v lists the neighbours of v: ascending, no duplicates, no v itself, symmetric.
using Adjacency = std::vector<std::vector<Vertex>>;

/// The op graph without directions: ops are joined where one reads a value that the other makes. `after`
/// is no edge, since it holds nothing in memory. O(edges log edges).
Adjacency op_adjacency(const Graph& graph);
/// From pairs in any order; duplicates and loops are dropped.
Adjacency adjacency(std::size_t vertices, const std::vector<std::pair<Vertex, Vertex>>& edges);

enum class EliminationRule {
  kMinFill,    ///< next the vertex whose elimination adds the fewest edges, then the lowest degree
  kMinDegree,  ///< next the vertex of lowest degree: faster, and often a little wider
};

/// Vertices in the order of their elimination. Those from `core` on (a clique, or the rest when the limits
/// were reached) share one bag.
struct Elimination {
  std::vector<Vertex> order;
  std::size_t core = 0;
};

inline constexpr std::int32_t kNoWidth = std::numeric_limits<std::int32_t>::max();

/// Greedy elimination with exact incremental fill counts: O(f (w + log n)) for f edges added and width w.
/// Ties go to the smaller vertex, or to a seeded random rank where `seed` is given. Returns nothing where
/// the width reaches `give_up_at`.
std::optional<Elimination> eliminate(const Adjacency& graph, EliminationRule rule, Limits& limits,
                                     std::optional<std::uint64_t> seed = std::nullopt,
                                     std::int32_t give_up_at = kNoWidth);

struct TreeDecomposition {
  std::vector<Bag> bags;
  std::vector<std::pair<std::int32_t, std::int32_t>> edges;  ///< tree edges between bag indices

  std::int32_t width() const;  ///< -1 where there is no bag
  friend bool operator==(const TreeDecomposition&, const TreeDecomposition&) = default;
};

/// Bags and tree of an elimination order; components are joined by tree edges. O(n width).
TreeDecomposition from_elimination(const Adjacency& graph, const Elimination& elimination);

/// Lemma 1: bags contained in a neighbour are merged into it (union-find), which leaves at most one bag per
/// vertex and the width as it was. O(bags (width + alpha)).
TreeDecomposition reduced(const TreeDecomposition& decomposition);

/// Eliminates by `rule`, then reduces.
TreeDecomposition decompose(const Adjacency& graph, EliminationRule rule, Limits& limits);

/// Anytime improvement of the width: restarts with random ties, both rules in turn, each aborted as soon as
/// it cannot improve; ends at the limits, at the lower bound, or after `restarts`.
TreeDecomposition improved(const Adjacency& graph, TreeDecomposition start, std::uint64_t seed, int restarts,
                           Limits& limits);

/// A lower bound on the treewidth: the largest minimum degree seen while contracting a vertex of least
/// degree into its neighbour of least degree (Bodlaender and Koster, MMD+ least-d).
std::int32_t width_lower_bound(const Adjacency& graph);

/// The first broken property, as one line; independent of how the decomposition was made.
std::optional<std::string> find_defect(const Adjacency& graph, const TreeDecomposition& decomposition);

/// Balanced separators of a decomposition (Lemma 3), found once for every part that the recursion meets: a
/// tree whose nodes hold the vertices of a separator that no node above holds. Removing a node's bag leaves
/// parts of at most half of its bags, so that the depth is at most log2(bags) + 1.
struct SeparatorTree {
  struct Node {
    std::vector<Vertex> own;  ///< ascending; may be empty
    std::vector<std::int32_t> children;
    std::int32_t bags = 0;  ///< of the part that the node separates
    std::int32_t end = 0;   ///< nodes [this, end) are the part: preorder numbers
  };
  std::vector<Node> nodes;          ///< in preorder; node 0 is the root
  std::vector<std::int32_t> owner;  ///< per vertex, the node that holds it

  bool in_part(std::int32_t node, Vertex v) const {
    const std::int32_t top = owner[at(v)];
    return node <= top && top < nodes[at(node)].end;
  }
};

/// Among the bags that balance equally well, the one with the least `weight` is taken (bytes held while the
/// parts are computed). O(bags log bags).
SeparatorTree separator_tree(const TreeDecomposition& decomposition, const std::vector<std::int64_t>& weight);

}  // namespace remat::decomposition
