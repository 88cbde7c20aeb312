#include "decomposition/path_decomposition.h"

#include <algorithm>
#include <set>
#include <tuple>

#include "base/numbers.h"
#include "base/sorted.h"
#include "remat/check.h"

namespace remat::decomposition {
namespace {

/// Vertices placed so far, and which to place next.
class Layout {
 public:
  Layout(const Adjacency& graph, std::int32_t give_up_at)
      : graph_(graph),
        give_up_at_(give_up_at),
        open_(graph.size()),
        releases_(graph.size(), 0),
        placed_(graph.size(), kNotPlaced),
        oldest_(graph.size(), kNotPlaced) {
    for (std::size_t v = 0; v < graph.size(); ++v) open_[v] = narrow<std::int32_t>(graph[v].size());
  }

  /// Nothing where the width reaches `give_up_at` or the limits are reached.
  std::optional<PathDecomposition> run(Vertex start, Limits& limits) {
    PathDecomposition path;
    place(start, path);
    Vertex fresh = 0;
    while (path.size() < graph_.size()) {
      if (limits.spend(1 + std::ssize(boundary_) / 32)) return std::nullopt;
      if (candidates_.empty()) {
        while (placed_[at(fresh)] != kNotPlaced) ++fresh;
        place(fresh, path);
      } else {
        place(std::get<2>(*candidates_.begin()), path);
      }
      if (narrow<std::int32_t>(path.back().size()) > give_up_at_) return std::nullopt;
    }
    return path;
  }

 private:
  static constexpr std::int32_t kNotPlaced = std::numeric_limits<std::int32_t>::max();
  using Key = std::tuple<std::int32_t, std::int32_t, Vertex>;

  Key key(Vertex v) const { return {(open_[at(v)] > 0) - releases_[at(v)], oldest_[at(v)], v}; }
  template <class Change>
  void change(Vertex v, Change&& apply) {
    const bool listed = oldest_[at(v)] != kNotPlaced && placed_[at(v)] == kNotPlaced;
    if (listed) candidates_.erase(key(v));
    apply();
    if (oldest_[at(v)] != kNotPlaced && placed_[at(v)] == kNotPlaced) candidates_.insert(key(v));
  }

  void place(Vertex v, PathDecomposition& path) {
    Bag bag(boundary_.begin(), boundary_.end());
    bag.insert(std::lower_bound(bag.begin(), bag.end(), v), v);
    change(v, [&] { placed_[at(v)] = narrow<std::int32_t>(path.size()); });
    path.push_back(std::move(bag));
    for (Vertex u : graph_[at(v)]) {
      change(u, [&] {
        --open_[at(u)];
        oldest_[at(u)] = std::min(oldest_[at(u)], placed_[at(v)]);
      });
      if (placed_[at(u)] == kNotPlaced) continue;
      if (open_[at(u)] == 0) boundary_.erase(u);
      if (open_[at(u)] == 1) release(u);
    }
    if (open_[at(v)] > 0) boundary_.insert(v);
    if (open_[at(v)] == 1) release(v);
  }

  /// Removes a placed vertex from the lists once its last neighbour is placed.
  void release(Vertex v) {
    for (Vertex u : graph_[at(v)]) {
      if (placed_[at(u)] == kNotPlaced) change(u, [&] { ++releases_[at(u)]; });
    }
  }

  const Adjacency& graph_;
  std::int32_t give_up_at_;
  std::vector<std::int32_t> open_;      ///< neighbours not placed
  std::vector<std::int32_t> releases_;  ///< placed vertices that wait for this one alone
  std::vector<std::int32_t> placed_;
  std::vector<std::int32_t> oldest_;  ///< place of the neighbour placed first
  std::set<Vertex> boundary_;         ///< placed, with a neighbour to come
  std::set<Key> candidates_;
};

bool contains(const Bag& big, const Bag& small) {
  return std::includes(big.begin(), big.end(), small.begin(), small.end());
}

/// Nothing where the limits are reached.
std::optional<PathDecomposition> without_contained(PathDecomposition path, Limits& limits) {
  PathDecomposition result;
  for (Bag& bag : path) {
    if (limits.spend(1 + std::ssize(bag) / 32)) return std::nullopt;
    if (!result.empty() && contains(result.back(), bag)) continue;
    while (!result.empty() && contains(bag, result.back())) result.pop_back();
    result.push_back(std::move(bag));
  }
  return result;
}

PathDecomposition one_bag(std::size_t vertices) {
  PathDecomposition result(1);
  for (Vertex v = 0; v < narrow<Vertex>(vertices); ++v) result.front().push_back(v);
  return result;
}

/// The last vertex that a breadth-first search meets.
Vertex far_from(const Adjacency& graph, Vertex start) {
  std::vector<bool> seen(graph.size(), false);
  std::vector<Vertex> queue{start};
  seen[at(start)] = true;
  for (std::size_t i = 0; i < queue.size(); ++i) {
    for (Vertex u : graph[at(queue[i])]) {
      if (seen[at(u)]) continue;
      seen[at(u)] = true;
      queue.push_back(u);
    }
  }
  return queue.back();
}

/// The bags that hold each vertex, both ends included: INTERVAL(v) of the paper.
struct Intervals {
  explicit Intervals(std::size_t vertices) : left(vertices, -1), right(vertices, -1) {}
  /// Stretches the interval of v until it meets [first, last].
  void stretch(Vertex v, std::int32_t first, std::int32_t last) {
    right[at(v)] = std::max(right[at(v)], first);
    left[at(v)] = std::min(left[at(v)], last);
  }
  std::vector<std::int32_t> left, right;
};

Intervals intervals_of(const PathDecomposition& path, std::size_t vertices) {
  Intervals result(vertices);
  for (std::size_t i = 0; i < path.size(); ++i) {
    for (Vertex v : path[i]) {
      if (result.left[at(v)] < 0) result.left[at(v)] = narrow<std::int32_t>(i);
      result.right[at(v)] = narrow<std::int32_t>(i);
    }
  }
  return result;
}

PathDecomposition bags_of(const Intervals& intervals, std::size_t bags) {
  PathDecomposition result(bags);
  for (std::size_t v = 0; v < intervals.left.size(); ++v) {
    for (std::int32_t i = intervals.left[v]; i <= intervals.right[v]; ++i) {
      result[at(i)].push_back(narrow<Vertex>(v));
    }
  }
  return result;
}

}  // namespace

std::int32_t width(const PathDecomposition& path) {
  std::size_t most = 0;
  for (const Bag& bag : path) most = std::max(most, bag.size());
  return narrow<std::int32_t>(most) - 1;
}

std::optional<std::string> find_defect(const Adjacency& graph, const PathDecomposition& path) {
  TreeDecomposition tree{path, {}};
  for (std::int32_t i = 0; i + 1 < narrow<std::int32_t>(path.size()); ++i) tree.edges.emplace_back(i, i + 1);
  return find_defect(graph, tree);
}

PathDecomposition greedy_path(const Adjacency& graph, Limits& limits) {
  if (graph.empty()) return {};
  const auto last = narrow<Vertex>(graph.size()) - 1;
  const Vertex far = far_from(graph, 0);
  std::vector<Vertex> starts{0, last, far, far_from(graph, far), last / 2};
  sort_unique(starts);
  std::optional<PathDecomposition> best;
  for (Vertex start : starts) {
    auto path = Layout(graph, best ? width(*best) : kNoWidth).run(start, limits);
    if (path && (!best || width(*path) < width(*best))) best = std::move(path);
  }
  if (best) best = without_contained(std::move(*best), limits);
  REMAT_ASSERT_HEAVY(!best || !find_defect(graph, *best), *find_defect(graph, *best));
  return best ? std::move(*best) : one_bag(graph.size());
}

Spine add_spine(const Arcs& arcs, const PathDecomposition& path, Limits& limits) {
  const std::size_t n = arcs.size();
  Intervals intervals = intervals_of(path, n);
  std::vector<std::int32_t> unexplored(n, 0);  // predecessors
  for (const auto& row : arcs) {
    for (Vertex v : row) ++unexplored[at(v)];
  }
  const auto by_right = [&](std::vector<Vertex> ready) {
    std::stable_sort(ready.begin(), ready.end(),
                     [&](Vertex a, Vertex b) { return intervals.right[at(a)] < intervals.right[at(b)]; });
    return ready;
  };
  // A call of ProcessNode; the root is the node r of the paper, which is in all bags.
  struct Call {
    std::int32_t right;         ///< of the node, before anything was stretched
    std::vector<Vertex> ready;  ///< successors whose last open predecessor it was
    Vertex end;                 ///< of the path so far
    std::size_t next = 0;       ///< in `ready`
  };
  Spine spine;
  std::vector<Vertex> sources;
  for (std::size_t v = 0; v < n; ++v) {
    if (unexplored[v] == 0) sources.push_back(narrow<Vertex>(v));
  }
  std::vector<Call> calls;
  calls.push_back({narrow<std::int32_t>(path.size()) - 1, by_right(std::move(sources)), -1});
  while (true) {
    Call& call = calls.back();
    if (call.next > 0 && call.next < call.ready.size()) {
      const Vertex next = call.ready[call.next];
      intervals.stretch(call.end, intervals.left[at(next)], intervals.right[at(next)]);
    } else if (call.next > 0) {
      intervals.stretch(call.end, call.right, call.right);
    }
    if (call.next == call.ready.size()) {
      const Vertex end = call.end;
      calls.pop_back();
      if (calls.empty()) break;
      calls.back().end = end;
      continue;
    }
    const Vertex v = call.ready[call.next++];
    spine.order.push_back(v);
    std::vector<Vertex> ready;
    for (Vertex u : arcs[at(v)]) {
      if (--unexplored[at(u)] == 0) ready.push_back(u);
    }
    calls.push_back({intervals.right[at(v)], by_right(std::move(ready)), v});
  }
  auto bags = without_contained(bags_of(intervals, path.size()), limits);
  spine.path = bags ? std::move(*bags) : one_bag(arcs.size());
  return spine;
}

}  // namespace remat::decomposition
