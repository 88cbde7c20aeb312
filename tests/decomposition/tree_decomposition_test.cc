#include "decomposition/tree_decomposition.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>

#include "helpers/graphs.h"
#include "remat/random.h"

namespace remat::decomposition {
namespace {

using Edges = std::vector<std::pair<Vertex, Vertex>>;

Adjacency path(Vertex n) {
  Edges edges;
  for (Vertex v = 1; v < n; ++v) edges.emplace_back(v - 1, v);
  return adjacency(static_cast<std::size_t>(n), edges);
}

Adjacency cycle(Vertex n) {
  Edges edges;
  for (Vertex v = 0; v < n; ++v) edges.emplace_back(v, (v + 1) % n);
  return adjacency(static_cast<std::size_t>(n), edges);
}

Adjacency clique(Vertex n) {
  Edges edges;
  for (Vertex a = 0; a < n; ++a) {
    for (Vertex b = 0; b < a; ++b) edges.emplace_back(a, b);
  }
  return adjacency(static_cast<std::size_t>(n), edges);
}

/// Vertex r * columns + c; neighbours left, right, above, below.
Adjacency grid(Vertex rows, Vertex columns) {
  Edges edges;
  for (Vertex r = 0; r < rows; ++r) {
    for (Vertex c = 0; c < columns; ++c) {
      if (c > 0) edges.emplace_back(r * columns + c, r * columns + c - 1);
      if (r > 0) edges.emplace_back(r * columns + c, (r - 1) * columns + c);
    }
  }
  return adjacency(static_cast<std::size_t>(rows * columns), edges);
}

/// A graph of treewidth at most k: each vertex after the first joins some of a k-clique, then edges go.
Adjacency partial_k_tree(Random& random, Vertex n, Vertex k, double keep) {
  std::vector<std::vector<Vertex>> cliques{{}};
  Edges edges;
  for (Vertex v = 0; v < n; ++v) {
    std::vector<Vertex> base =
        cliques[static_cast<std::size_t>(random.below(static_cast<std::int64_t>(cliques.size())))];
    for (Vertex u : base) {
      if (random.chance(keep)) edges.emplace_back(u, v);
    }
    if (static_cast<Vertex>(base.size()) == k) base.erase(base.begin() + random.below(k));
    base.push_back(v);
    cliques.push_back(base);
  }
  return adjacency(static_cast<std::size_t>(n), edges);
}

/// Treewidth over all elimination orders; for at most 8 vertices.
std::int32_t brute_force_width(const Adjacency& graph) {
  std::vector<Vertex> order(graph.size());
  for (std::size_t i = 0; i < order.size(); ++i) order[i] = static_cast<Vertex>(i);
  std::int32_t best = kNoWidth;
  do {
    best = std::min(best, from_elimination(graph, {order, order.size()}).width());
  } while (std::next_permutation(order.begin(), order.end()));
  return best;
}

Adjacency random_sparse(Random& random, std::size_t n, std::size_t m) {
  Edges edges;
  for (std::size_t i = 0; i < m; ++i) {
    edges.emplace_back(static_cast<Vertex>(random.below(static_cast<std::int64_t>(n))),
                       static_cast<Vertex>(random.below(static_cast<std::int64_t>(n))));
  }
  return adjacency(n, edges);
}

constexpr EliminationRule kRules[] = {EliminationRule::kMinFill, EliminationRule::kMinDegree};

TEST(TreeDecomposition, HasTheKnownWidthOnPathsCyclesCliquesAndGrids) {
  Limits limits;
  for (EliminationRule rule : kRules) {
    EXPECT_EQ(decompose(path(1), rule, limits).width(), 0);
    EXPECT_EQ(decompose(path(50), rule, limits).width(), 1);
    EXPECT_EQ(decompose(cycle(50), rule, limits).width(), 2);
    EXPECT_EQ(decompose(clique(9), rule, limits).width(), 8);
    EXPECT_EQ(decompose(clique(9), rule, limits).bags.size(), 1u);
    EXPECT_EQ(decompose(grid(2, 30), rule, limits).width(), 2);
    EXPECT_EQ(decompose(grid(3, 30), rule, limits).width(), 3);
  }
}

TEST(TreeDecomposition, OfRandomGraphsPassesTheValidator) {
  Random random(1);
  Limits limits;
  for (int round = 0; round < 400; ++round) {
    const auto n = static_cast<std::size_t>(random.between(1, 60));
    const Adjacency graph =
        random_sparse(random, n, static_cast<std::size_t>(random.below(3 * static_cast<std::int64_t>(n))));
    for (EliminationRule rule : kRules) {
      const auto order = eliminate(graph, rule, limits, random.next());
      ASSERT_TRUE(order);
      const TreeDecomposition full = from_elimination(graph, *order);
      ASSERT_EQ(find_defect(graph, full), std::nullopt);
      const TreeDecomposition small = reduced(full);
      ASSERT_EQ(find_defect(graph, small), std::nullopt);
      ASSERT_EQ(small.width(), full.width());
      ASSERT_LE(small.bags.size(), n);
      for (const auto& [a, b] : small.edges) {
        const Bag &x = small.bags[static_cast<std::size_t>(a)], &y = small.bags[static_cast<std::size_t>(b)];
        ASSERT_FALSE(std::includes(x.begin(), x.end(), y.begin(), y.end()));
        ASSERT_FALSE(std::includes(y.begin(), y.end(), x.begin(), x.end()));
      }
    }
  }
}

TEST(TreeDecomposition, MinFillTakesTheVertexOfLeastFillAtEveryStep) {
  Random random(2);
  Limits limits;
  for (int round = 0; round < 100; ++round) {
    Adjacency graph = random_sparse(random, 25, 50);
    const auto order = eliminate(graph, EliminationRule::kMinFill, limits);
    const auto fill = [&](std::size_t v) {
      std::int64_t missing = 0;
      for (Vertex a : graph[v]) {
        for (Vertex b : graph[v]) {
          const auto& row = graph[static_cast<std::size_t>(a)];
          missing += a < b && !std::binary_search(row.begin(), row.end(), b);
        }
      }
      return missing;
    };
    std::vector<bool> gone(graph.size(), false);
    for (std::size_t i = 0; i < order->core; ++i) {
      const auto v = static_cast<std::size_t>(order->order[i]);
      for (std::size_t u = 0; u < graph.size(); ++u) {
        if (gone[u]) continue;
        ASSERT_LE(fill(v), fill(u)) << "step " << i;
      }
      gone[v] = true;
      Edges edges;
      for (std::size_t u = 0; u < graph.size(); ++u) {
        for (Vertex w : graph[u]) {
          if (u != v && static_cast<std::size_t>(w) != v) edges.emplace_back(static_cast<Vertex>(u), w);
        }
      }
      for (Vertex a : graph[v]) {
        for (Vertex b : graph[v]) edges.emplace_back(a, b);
      }
      graph = adjacency(graph.size(), edges);
    }
  }
}

TEST(TreeDecomposition, ImprovesToTheBruteForceWidthOnTinyGraphs) {
  Random random(3);
  Limits limits;
  int proved = 0;
  for (int round = 0; round < 60; ++round) {
    const Adjacency graph = random_sparse(random, 7, static_cast<std::size_t>(random.between(4, 18)));
    const std::int32_t exact = brute_force_width(graph);
    const std::int32_t bound = width_lower_bound(graph);
    ASSERT_LE(bound, exact);
    proved += bound == exact;
    const auto start = decompose(graph, EliminationRule::kMinDegree, limits);
    const auto best = improved(graph, start, 5, 20, limits);
    ASSERT_EQ(find_defect(graph, best), std::nullopt);
    ASSERT_LE(best.width(), start.width());
    ASSERT_EQ(best.width(), exact);
  }
  EXPECT_GT(proved, 40);
}

TEST(TreeDecomposition, StaysNearTheWidthOfPartialKTrees) {
  Random random(4);
  Limits limits;
  for (Vertex k : {2, 4, 8}) {
    const Adjacency graph = partial_k_tree(random, 2000, k, 0.8);
    const auto best = decompose(graph, EliminationRule::kMinFill, limits);
    EXPECT_EQ(find_defect(graph, best), std::nullopt);
    EXPECT_LE(best.width(), k + 2);
  }
}

TEST(TreeDecomposition, LeavesTheRestInOneBagWhenTheLimitsAreReached) {
  Random random(5);
  const Adjacency graph = random_sparse(random, 300, 900);
  Limits limits;
  limits.set_work(40);
  const auto order = eliminate(graph, EliminationRule::kMinFill, limits);
  EXPECT_LT(order->core, 60u);
  EXPECT_EQ(find_defect(graph, from_elimination(graph, *order)), std::nullopt);
}

TEST(TreeDecomposition, EndsAtTheLimitsWithinOneVertexOfManyNeighbours) {
  // Every vertex of the two sides has 1,500 neighbours, none of them joined: 10^6 edges for the first.
  constexpr Vertex kSide = 1500;
  std::vector<std::pair<Vertex, Vertex>> edges;
  for (Vertex a = 0; a < kSide; ++a) {
    for (Vertex b = 0; b < kSide; ++b) edges.emplace_back(a, kSide + b);
  }
  const Adjacency graph = adjacency(2 * kSide, edges);
  Limits limits;
  limits.set_work(100);
  const auto order = eliminate(graph, EliminationRule::kMinDegree, limits);
  ASSERT_TRUE(order);
  EXPECT_EQ(order->core, 0u);
  EXPECT_LT(limits.work(), 20'000);
  std::vector<Vertex> all = order->order;
  std::sort(all.begin(), all.end());
  ASSERT_EQ(all.size(), graph.size());
  EXPECT_EQ(std::unique(all.begin(), all.end()), all.end());
}

TEST(TreeDecomposition, JoinsTheComponentsOfADisconnectedGraph) {
  Limits limits;
  const Adjacency graph = adjacency(6, {{0, 1}, {2, 3}});
  const auto result = decompose(graph, EliminationRule::kMinFill, limits);
  EXPECT_EQ(find_defect(graph, result), std::nullopt);
  EXPECT_EQ(result.width(), 1);
}

TEST(TreeDecompositionValidator, NamesEachKindOfDefect) {
  const Adjacency graph = path(4);
  const TreeDecomposition good{{{0, 1}, {1, 2}, {2, 3}}, {{0, 1}, {1, 2}}};
  EXPECT_EQ(find_defect(graph, good), std::nullopt);

  TreeDecomposition bad = good;
  bad.bags[1] = {1};
  EXPECT_EQ(find_defect(graph, bad), "edge 1-2 is in no bag");
  bad = good;
  bad.bags[2] = {2};
  EXPECT_EQ(find_defect(adjacency(4, {{0, 1}, {1, 2}}), bad), "vertex 3 is in no bag");
  bad = good;
  bad.bags[2] = {0, 2, 3};
  EXPECT_EQ(find_defect(graph, bad), "the 2 bags of vertex 0 are not connected: 0 tree edges among them");
  bad = good;
  bad.edges.pop_back();
  EXPECT_EQ(find_defect(graph, bad), "3 bags with 1 tree edges are not a tree");
  bad = good;
  bad.edges[1] = {1, 0};
  EXPECT_EQ(find_defect(graph, bad), "tree edge 1-0 closes a cycle");
  bad = good;
  bad.bags[0] = {0, 9};
  EXPECT_EQ(find_defect(graph, bad), "bag 0 holds vertex 9 of a graph with 4");
}

TEST(SeparatorTree, HalvesTheBagsAndKeepsEveryEdgeOnOneBranch) {
  Random random(6);
  Limits limits;
  for (int round = 0; round < 60; ++round) {
    const auto n = static_cast<std::size_t>(random.between(1, 120));
    const Adjacency graph = random_sparse(random, n, n + n / 2);
    const auto parts =
        separator_tree(decompose(graph, EliminationRule::kMinFill, limits), std::vector<std::int64_t>(n, 1));
    std::vector<std::size_t> owned(n, 0);
    for (std::size_t i = 0; i < parts.nodes.size(); ++i) {
      const auto& node = parts.nodes[i];
      for (std::int32_t child : node.children) {
        ASSERT_GT(child, static_cast<std::int32_t>(i));
        ASSERT_LE(parts.nodes[static_cast<std::size_t>(child)].end, node.end);
        ASSERT_LE(2 * parts.nodes[static_cast<std::size_t>(child)].bags, node.bags);
      }
      for (Vertex v : node.own) {
        ++owned[static_cast<std::size_t>(v)];
        ASSERT_EQ(parts.owner[static_cast<std::size_t>(v)], static_cast<std::int32_t>(i));
      }
    }
    ASSERT_EQ(std::count(owned.begin(), owned.end(), 1u), static_cast<std::ptrdiff_t>(n));
    for (std::size_t v = 0; v < n; ++v) {
      for (Vertex u : graph[v]) {
        const bool one_branch =
            parts.in_part(parts.owner[v], u) ||
            parts.in_part(parts.owner[static_cast<std::size_t>(u)], static_cast<Vertex>(v));
        ASSERT_TRUE(one_branch) << v << "-" << u;
      }
    }
  }
}

}  // namespace
}  // namespace remat::decomposition
