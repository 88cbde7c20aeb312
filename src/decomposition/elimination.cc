#include <algorithm>
#include <numeric>
#include <tuple>
#include <utility>

#include "base/numbers.h"
#include "base/sorted.h"
#include "decomposition/tree_decomposition.h"
#include "remat/random.h"

namespace remat::decomposition {
namespace {

bool contains(const std::vector<Vertex>& row, Vertex v) {
  return std::binary_search(row.begin(), row.end(), v);
}

void insert(std::vector<Vertex>& row, Vertex v) {
  row.insert(std::lower_bound(row.begin(), row.end(), v), v);
}

void erase(std::vector<Vertex>& row, Vertex v) { row.erase(std::lower_bound(row.begin(), row.end(), v)); }

/// Binary heap of vertices with a place per vertex, so that any key can change at any time.
class VertexHeap {
 public:
  struct Key {
    std::int64_t first = 0, second = 0, rank = 0;
    friend auto operator<=>(const Key&, const Key&) = default;
  };

  explicit VertexHeap(std::vector<Key> keys)
      : keys_(std::move(keys)), place_(keys_.size()), heap_(keys_.size()) {
    std::iota(heap_.begin(), heap_.end(), 0);
    std::sort(heap_.begin(), heap_.end(), [&](Vertex a, Vertex b) { return keys_[at(a)] < keys_[at(b)]; });
    for (std::size_t i = 0; i < heap_.size(); ++i) place_[at(heap_[i])] = i;
  }
  bool empty() const { return heap_.empty(); }
  Vertex pop() {
    const Vertex top = heap_.front();
    put(0, heap_.back());
    heap_.pop_back();
    if (!heap_.empty()) down(0);
    return top;
  }
  void update(Vertex v, std::int64_t first, std::int64_t second) {
    Key& key = keys_[at(v)];
    if (key.first == first && key.second == second) return;
    key.first = first;
    key.second = second;
    up(place_[at(v)]);
    down(place_[at(v)]);
  }

 private:
  bool less(std::size_t i, std::size_t j) const { return keys_[at(heap_[i])] < keys_[at(heap_[j])]; }
  void put(std::size_t i, Vertex v) {
    heap_[i] = v;
    place_[at(v)] = i;
  }
  void swap(std::size_t i, std::size_t j) {
    const Vertex v = heap_[i];
    put(i, heap_[j]);
    put(j, v);
  }
  void up(std::size_t i) {
    for (; i > 0 && less(i, (i - 1) / 2); i = (i - 1) / 2) swap(i, (i - 1) / 2);
  }
  void down(std::size_t i) {
    for (;;) {
      std::size_t least = i;
      for (std::size_t child : {2 * i + 1, 2 * i + 2}) {
        if (child < heap_.size() && less(child, least)) least = child;
      }
      if (least == i) return;
      swap(i, least);
      i = least;
    }
  }

  std::vector<Key> keys_;
  std::vector<std::size_t> place_;
  std::vector<Vertex> heap_;
};

/// The elimination game. State: the graph left. Derived, for min-fill only: fill_[v] = pairs of neighbours
/// of v that are not joined, kept exact as edges come and vertices go.
class Game {
 public:
  Game(const Adjacency& graph, EliminationRule rule, Limits& limits)
      : graph_(graph),
        with_fill_(rule == EliminationRule::kMinFill),
        fill_(with_fill_ ? graph.size() : 0),
        limits_(limits) {
    if (with_fill_) count_fill();
  }
  std::int64_t degree(Vertex v) const { return static_cast<std::int64_t>(row(v).size()); }
  std::pair<std::int64_t, std::int64_t> key(Vertex v) const {
    return with_fill_ ? std::pair(fill_[at(v)], degree(v)) : std::pair(degree(v), std::int64_t{0});
  }
  /// Joins the neighbours of v and removes it. `touched` gets the vertices whose key may have changed, with
  /// repetitions. False where the limits were reached on the way, which leaves no game to go on with.
  bool eliminate(Vertex v, std::vector<Vertex>& touched) {
    const std::vector<Vertex> around = std::move(row(v));
    for (std::size_t i = 0; i < around.size(); ++i) {
      work_ += std::ssize(around);
      if (is_stopped()) return false;
      for (std::size_t j = i + 1; j < around.size(); ++j) {
        const Vertex a = around[i], b = around[j];
        const bool joined = degree(a) < degree(b) ? contains(row(a), b) : contains(row(b), a);
        if (!joined) join(a, b, v, touched);
      }
    }
    for (Vertex a : around) {
      // The neighbours of v are a clique now: what a lacks beside v are the pairs of v with the others.
      if (with_fill_) fill_[at(a)] -= degree(a) - std::ssize(around);
      erase(row(a), v);
      touched.push_back(a);
    }
    limits_.spend(1 + (std::exchange(work_, 0) + 1) / 32);
    return true;
  }

 private:
  /// Checked within a vertex too: one with many neighbours takes seconds.
  bool is_stopped() {
    constexpr std::int64_t kLong = 1 << 18;
    return work_ > kLong && limits_.spend(std::exchange(work_, 0) / 32);
  }
  std::vector<Vertex>& row(Vertex v) { return graph_[at(v)]; }
  const std::vector<Vertex>& row(Vertex v) const { return graph_[at(v)]; }

  void count_fill() {
    std::vector<Vertex> mark(graph_.size(), -1);
    for (Vertex v = 0; at(v) < graph_.size(); ++v) {
      for (Vertex a : row(v)) mark[at(a)] = v;
      std::int64_t joined = 0;
      for (Vertex a : row(v)) {
        for (Vertex b : row(a)) joined += mark[at(b)] == v;
        work_ += degree(a);
        if (is_stopped()) return;
      }
      fill_[at(v)] = degree(v) * (degree(v) - 1) / 2 - joined / 2;
    }
    work_ = 0;
  }
  void join(Vertex a, Vertex b, Vertex eliminated, std::vector<Vertex>& touched) {
    if (with_fill_) {
      const auto& few = degree(a) < degree(b) ? row(a) : row(b);
      const auto& many = degree(a) < degree(b) ? row(b) : row(a);
      std::int64_t common = 0;
      for (Vertex c : few) {
        if (c == eliminated) {
          ++common;
        } else if (contains(many, c)) {
          ++common;
          --fill_[at(c)];
          touched.push_back(c);
        }
      }
      fill_[at(a)] += degree(a) - common;
      fill_[at(b)] += degree(b) - common;
      work_ += std::ssize(few);
    }
    insert(row(a), b);
    insert(row(b), a);
  }

  Adjacency graph_;
  bool with_fill_;
  std::vector<std::int64_t> fill_;
  Limits& limits_;
  std::int64_t work_ = 0;  ///< not yet spent
};

std::vector<std::int64_t> ranks(std::size_t n, std::optional<std::uint64_t> seed) {
  std::vector<std::int64_t> rank(n);
  std::iota(rank.begin(), rank.end(), 0);
  if (seed) {
    Random random(*seed);
    random.shuffle(std::span(rank));
  }
  return rank;
}

}  // namespace

Adjacency adjacency(std::size_t vertices, const std::vector<std::pair<Vertex, Vertex>>& edges) {
  Adjacency rows(vertices);
  for (const auto& [a, b] : edges) {
    if (a == b) continue;
    rows[at(a)].push_back(b);
    rows[at(b)].push_back(a);
  }
  for (auto& row : rows) sort_unique(row);
  return rows;
}

Adjacency op_adjacency(const Graph& graph) {
  std::vector<std::pair<Vertex, Vertex>> edges;
  for (OpId op : graph.ops()) {
    for (ValueId v : graph.inputs[op]) {
      if (!graph.is_graph_input(v)) edges.emplace_back(graph.producer[v].index(), op.index());
    }
  }
  return adjacency(graph.num_ops(), edges);
}

std::optional<Elimination> eliminate(const Adjacency& graph, EliminationRule rule, Limits& limits,
                                     std::optional<std::uint64_t> seed, std::int32_t give_up_at) {
  const std::vector<std::int64_t> rank = ranks(graph.size(), seed);
  Game game(graph, rule, limits);
  std::vector<VertexHeap::Key> keys;
  for (std::size_t v = 0; v < graph.size(); ++v) {
    const auto [first, second] = game.key(narrow<Vertex>(v));
    keys.push_back({first, second, rank[v]});
  }
  VertexHeap heap(std::move(keys));

  Elimination result;
  std::vector<bool> gone(graph.size(), false);
  std::vector<Vertex> touched;
  bool core = false;
  while (!heap.empty()) {
    const Vertex v = heap.pop();
    const auto left = static_cast<std::int64_t>(graph.size() - result.order.size());
    if (!core && (game.degree(v) + 1 == left || limits.stopped_by())) {
      core = true;
      result.core = result.order.size();
      if (left - 1 >= give_up_at) return std::nullopt;
    }
    result.order.push_back(v);
    if (core) continue;
    if (game.degree(v) >= give_up_at) return std::nullopt;
    touched.clear();
    gone[at(v)] = true;
    if (!game.eliminate(v, touched)) {
      if (left - 1 >= give_up_at) return std::nullopt;
      core = true;
      result.core = result.order.size() - 1;
      continue;
    }
    for (Vertex t : touched) {
      if (gone[at(t)]) continue;
      const auto [first, second] = game.key(t);
      heap.update(t, first, second);
    }
  }
  if (!core) result.core = result.order.size();
  return result;
}

std::int32_t width_lower_bound(const Adjacency& graph) {
  Adjacency rows = graph;
  std::vector<VertexHeap::Key> keys;
  for (std::size_t v = 0; v < rows.size(); ++v) {
    keys.push_back({std::ssize(rows[v]), 0, static_cast<std::int64_t>(v)});
  }
  VertexHeap heap(std::move(keys));
  std::size_t bound = 0;
  const auto degree = [&](Vertex v) { return rows[at(v)].size(); };
  while (!heap.empty()) {
    const Vertex v = heap.pop();
    const std::vector<Vertex> around = std::move(rows[at(v)]);
    bound = std::max(bound, around.size());
    if (around.empty()) continue;
    const Vertex into = *std::min_element(around.begin(), around.end(), [&](Vertex a, Vertex b) {
      return std::tuple(degree(a), a) < std::tuple(degree(b), b);
    });
    for (Vertex a : around) {
      auto& row = rows[at(a)];
      erase(row, v);
      if (a != into && !contains(row, into)) {
        insert(row, into);
        insert(rows[at(into)], a);
      }
    }
    for (Vertex a : around) heap.update(a, static_cast<std::int64_t>(degree(a)), 0);
  }
  return narrow<std::int32_t>(bound);
}

}  // namespace remat::decomposition
