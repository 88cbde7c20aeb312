#include "decomposition/tree_decomposition.h"

#include <algorithm>
#include <numeric>

#include "base/numbers.h"
#include "remat/check.h"

namespace remat::decomposition {
namespace {

/// Joins the roots of a forest into one tree. Their bags share no vertex, so any edges between them do.
void join_roots(const std::vector<std::int32_t>& roots, TreeDecomposition& into) {
  for (std::size_t i = 1; i < roots.size(); ++i) into.edges.emplace_back(roots[i - 1], roots[i]);
}

class UnionFind {
 public:
  explicit UnionFind(std::size_t n) : parent_(n) { std::iota(parent_.begin(), parent_.end(), 0); }
  std::int32_t find(std::int32_t i) {
    while (parent_[at(i)] != i) i = parent_[at(i)] = parent_[at(parent_[at(i)])];
    return i;
  }
  /// False where both were in one set already. The representative of the union is that of `into`.
  bool unite(std::int32_t from, std::int32_t into) {
    from = find(from);
    into = find(into);
    parent_[at(from)] = into;
    return from != into;
  }

 private:
  std::vector<std::int32_t> parent_;
};

bool includes(const Bag& big, const Bag& small) {
  // The core that a limit leaves may hold most vertices, and next to it stand bags of a few.
  constexpr std::size_t kMuchLarger = 32;
  if (small.size() < big.size() / kMuchLarger) {
    return std::all_of(small.begin(), small.end(),
                       [&](Vertex v) { return std::binary_search(big.begin(), big.end(), v); });
  }
  return small.size() <= big.size() && std::includes(big.begin(), big.end(), small.begin(), small.end());
}

}  // namespace

std::int32_t TreeDecomposition::width() const {
  std::size_t widest = 0;
  for (const Bag& bag : bags) widest = std::max(widest, bag.size());
  return narrow<std::int32_t>(widest) - 1;
}

TreeDecomposition from_elimination(const Adjacency& graph, const Elimination& elimination) {
  const auto& order = elimination.order;
  std::vector<std::int32_t> place(graph.size());
  for (std::size_t i = 0; i < order.size(); ++i) place[at(order[i])] = narrow<std::int32_t>(i);
  const auto core = narrow<std::int32_t>(elimination.core);

  // Bag i is vertex order[i] with its neighbours at the time of its elimination: those of the graph, and
  // those it got from the bags below it. The last bag is the core.
  TreeDecomposition result;
  result.bags.resize(at(core) + (at(core) < order.size() ? 1 : 0));
  std::vector<std::vector<std::int32_t>> below(result.bags.size());
  std::vector<std::int32_t> roots;
  std::vector<std::int32_t> mark(graph.size(), -1);
  for (std::int32_t i = 0; i < core; ++i) {
    const Vertex v = order[at(i)];
    Bag bag{v};
    mark[at(v)] = i;
    const auto add = [&](Vertex u) {
      if (place[at(u)] > i && mark[at(u)] != i) {
        mark[at(u)] = i;
        bag.push_back(u);
      }
    };
    for (Vertex u : graph[at(v)]) add(u);
    for (std::int32_t child : below[at(i)]) {
      for (Vertex u : result.bags[at(child)]) add(u);
    }
    std::int32_t next = narrow<std::int32_t>(order.size());
    for (Vertex u : bag) {
      if (u != v) next = std::min(next, place[at(u)]);
    }
    const std::int32_t parent = std::min(next, core);
    if (at(next) < order.size()) {
      below[at(parent)].push_back(i);
      result.edges.emplace_back(i, parent);
    } else {
      roots.push_back(i);
    }
    std::sort(bag.begin(), bag.end());
    result.bags[at(i)] = std::move(bag);
  }
  if (at(core) < order.size()) {
    Bag& rest = result.bags.back();
    rest.assign(order.begin() + core, order.end());
    std::sort(rest.begin(), rest.end());
    roots.push_back(core);
  }
  join_roots(roots, result);
  return result;
}

TreeDecomposition reduced(const TreeDecomposition& decomposition) {
  UnionFind merged(decomposition.bags.size());
  std::vector<std::pair<std::int32_t, std::int32_t>> kept;
  // The representative of a set is always its largest bag, which holds all the others: one pass over the
  // tree edges is enough (proof of Lemma 1).
  for (const auto& edge : decomposition.edges) {
    const std::int32_t a = merged.find(edge.first), b = merged.find(edge.second);
    if (includes(decomposition.bags[at(b)], decomposition.bags[at(a)])) {
      merged.unite(a, b);
    } else if (includes(decomposition.bags[at(a)], decomposition.bags[at(b)])) {
      merged.unite(b, a);
    } else {
      kept.push_back(edge);
    }
  }
  TreeDecomposition result;
  std::vector<std::int32_t> index(decomposition.bags.size(), -1);
  for (std::size_t i = 0; i < decomposition.bags.size(); ++i) {
    if (merged.find(narrow<std::int32_t>(i)) != narrow<std::int32_t>(i)) continue;
    index[i] = narrow<std::int32_t>(result.bags.size());
    result.bags.push_back(decomposition.bags[i]);
  }
  for (const auto& [a, b] : kept)
    result.edges.emplace_back(index[at(merged.find(a))], index[at(merged.find(b))]);
  return result;
}

TreeDecomposition decompose(const Adjacency& graph, EliminationRule rule, Limits& limits) {
  TreeDecomposition result = reduced(from_elimination(graph, *eliminate(graph, rule, limits)));
  REMAT_ASSERT_HEAVY(!find_defect(graph, result), *find_defect(graph, result));
  return result;
}

TreeDecomposition improved(const Adjacency& graph, TreeDecomposition start, std::uint64_t seed, int restarts,
                           Limits& limits) {
  const std::int32_t bound = width_lower_bound(graph);
  for (int round = 0; round < restarts && start.width() > bound && !limits.reached(); ++round) {
    const auto rule = round % 2 == 0 ? EliminationRule::kMinFill : EliminationRule::kMinDegree;
    const auto order =
        eliminate(graph, rule, limits, seed + static_cast<std::uint64_t>(round), start.width());
    if (!order) continue;
    TreeDecomposition next = reduced(from_elimination(graph, *order));
    REMAT_ASSERT(next.width() < start.width(), next.width(), start.width());
    REMAT_ASSERT_HEAVY(!find_defect(graph, next), *find_defect(graph, next));
    start = std::move(next);
  }
  REMAT_ASSERT(start.width() >= bound, start.width(), bound);
  return start;
}

namespace {

std::optional<std::string> find_bag_defect(const Adjacency& graph, const TreeDecomposition& decomposition) {
  for (std::size_t i = 0; i < decomposition.bags.size(); ++i) {
    const Bag& bag = decomposition.bags[i];
    for (std::size_t j = 0; j < bag.size(); ++j) {
      if (bag[j] < 0 || at(bag[j]) >= graph.size()) {
        return "bag " + std::to_string(i) + " holds vertex " + std::to_string(bag[j]) + " of a graph with " +
               std::to_string(graph.size());
      }
      if (j > 0 && bag[j - 1] >= bag[j]) return "bag " + std::to_string(i) + " is not ascending";
    }
  }
  return std::nullopt;
}

std::optional<std::string> find_tree_defect(const TreeDecomposition& decomposition) {
  const std::size_t bags = decomposition.bags.size();
  if (decomposition.edges.size() + 1 != bags && bags != 0) {
    return std::to_string(bags) + " bags with " + std::to_string(decomposition.edges.size()) +
           " tree edges are not a tree";
  }
  UnionFind joined(bags);
  for (const auto& [a, b] : decomposition.edges) {
    if (a < 0 || b < 0 || at(a) >= bags || at(b) >= bags) return "a tree edge leaves the tree";
    if (!joined.unite(a, b))
      return "tree edge " + std::to_string(a) + "-" + std::to_string(b) + " closes a cycle";
  }
  return std::nullopt;
}

}  // namespace

std::optional<std::string> find_defect(const Adjacency& graph, const TreeDecomposition& decomposition) {
  if (auto defect = find_bag_defect(graph, decomposition)) return defect;
  if (auto defect = find_tree_defect(decomposition)) return defect;

  std::vector<std::vector<std::int32_t>> holders(graph.size());
  for (std::size_t i = 0; i < decomposition.bags.size(); ++i) {
    for (Vertex v : decomposition.bags[i]) holders[at(v)].push_back(narrow<std::int32_t>(i));
  }
  // In a tree, k bags are connected exactly where k - 1 edges run between them.
  std::vector<std::size_t> inner(graph.size(), 0);
  for (const auto& [a, b] : decomposition.edges) {
    Bag both;
    std::set_intersection(decomposition.bags[at(a)].begin(), decomposition.bags[at(a)].end(),
                          decomposition.bags[at(b)].begin(), decomposition.bags[at(b)].end(),
                          std::back_inserter(both));
    for (Vertex v : both) ++inner[at(v)];
  }
  for (std::size_t v = 0; v < graph.size(); ++v) {
    if (holders[v].empty()) return "vertex " + std::to_string(v) + " is in no bag";
    if (inner[v] + 1 != holders[v].size()) {
      return "the " + std::to_string(holders[v].size()) + " bags of vertex " + std::to_string(v) +
             " are not connected: " + std::to_string(inner[v]) + " tree edges among them";
    }
    for (Vertex u : graph[v]) {
      std::vector<std::int32_t> both;
      std::set_intersection(holders[v].begin(), holders[v].end(), holders[at(u)].begin(),
                            holders[at(u)].end(), std::back_inserter(both));
      if (both.empty()) return "edge " + std::to_string(v) + "-" + std::to_string(u) + " is in no bag";
    }
  }
  return std::nullopt;
}

}  // namespace remat::decomposition
