#include "baselines/hiremate/phase_graph.h"

#include <algorithm>
#include <limits>

#include "base/numbers.h"
#include "base/sorted.h"
#include "base/topological.h"

namespace remat::hiremate {
namespace {

void link_values(PhaseGraph& graph) {
  graph.made.assign(graph.size(), {});
  graph.read.assign(graph.size(), {});
  for (std::size_t v = 0; v < graph.values.size(); ++v) {
    const auto id = narrow<std::int32_t>(v);
    graph.made[at(graph.values[v].maker)].push_back(id);
    for (std::int32_t reader : graph.values[v].readers) graph.read[at(reader)].push_back(id);
  }
}

/// New number of each block: a topological order, the block of the smallest node first.
std::vector<std::int32_t> topological_numbers(const std::vector<std::vector<std::int32_t>>& before,
                                              const std::vector<std::int32_t>& smallest) {
  std::vector<std::vector<std::int32_t>> after(before.size());
  for (int b : indices(before)) {
    for (std::int32_t p : before[at(b)]) after[at(p)].push_back(b);
  }
  std::vector<std::int32_t> number(before.size(), -1);
  std::int32_t next = 0;
  for (int b : topological_order(after, [&](int block) { return smallest[at(block)]; }))
    number[at(b)] = next++;
  return number;
}

/// Tree of dominators with jump pointers (Myers' skew-binary ancestors): two words a node, O(log n) a query.
class AncestorTree {
 public:
  explicit AncestorTree(std::size_t n) : parent_(n + 1, 0), jump_(n + 1, 0), depth_(n + 1, 0) {}

  /// Node i of the graph is i + 1 here; 0 is the root of all.
  void add(std::int32_t node, std::int32_t parent) {
    parent_[at(node)] = parent;
    depth_[at(node)] = depth_[at(parent)] + 1;
    const std::int32_t j = jump_[at(parent)];
    const bool even = depth_[at(parent)] - depth_[at(j)] == depth_[at(j)] - depth_[at(jump_[at(j)])];
    jump_[at(node)] = even ? jump_[at(j)] : parent;
  }
  std::int32_t common(std::int32_t a, std::int32_t b) const {
    if (depth_[at(a)] < depth_[at(b)]) std::swap(a, b);
    while (depth_[at(a)] > depth_[at(b)]) {
      a = depth_[at(jump_[at(a)])] >= depth_[at(b)] ? jump_[at(a)] : parent_[at(a)];
    }
    while (a != b) {
      const bool jump = jump_[at(a)] != jump_[at(b)];
      a = jump ? jump_[at(a)] : parent_[at(a)];
      b = jump ? jump_[at(b)] : parent_[at(b)];
    }
    return a;
  }

 private:
  std::vector<std::int32_t> parent_, jump_, depth_;
};

/// Which layers are constants, and which node each of them belongs to.
class Constants {
 public:
  explicit Constants(const TrainingGraph& training)
      : constant_(training.num_layers(), false), node_(training.num_layers()) {
    IndexVector<OpId, std::vector<OpId>> after(training.num_layers());
    for (OpId layer : training.layers()) {
      node_[layer] = layer;
      const auto before = training.before[layer];
      constant_[layer] = training.backward[layer].empty() &&
                         std::all_of(before.begin(), before.end(), [&](OpId p) { return constant_[p]; });
      for (OpId p : before) after[p].push_back(layer);
    }
    for (OpId layer = training.first_backward.prev(); layer; layer = layer.prev()) {
      if (!constant_[layer] && !training.before[layer].empty()) continue;
      const auto& users = after[layer];
      if (users.empty()) continue;
      const OpId node = node_[users.front()];
      const bool single = std::all_of(users.begin(), users.end(), [&](OpId u) { return node_[u] == node; });
      if (!single || is_source(training, node)) continue;
      node_[layer] = node;
    }
  }
  bool is_shared(OpId layer) const {
    return constant_[layer] && (node_[layer] == layer || constant_[node_[layer]]);
  }
  OpId node_of(OpId layer) const { return node_[layer]; }

 private:
  /// Nothing but sources and constants comes before the layer.
  bool is_source(const TrainingGraph& training, OpId layer) const {
    const auto before = training.before[layer];
    return !constant_[layer] && std::all_of(before.begin(), before.end(), [&](OpId p) {
      return constant_[p] || training.before[p].empty();
    });
  }

  IndexVector<OpId, bool> constant_;
  IndexVector<OpId, OpId> node_;
};

}  // namespace

PhaseGraph phase_graph(const TrainingGraph& training) {
  const Graph& g = *training.graph;
  const Constants constants(training);
  std::vector<std::int32_t> number(training.num_layers());
  PhaseGraph graph;
  for (const bool shared : {true, false}) {
    for (OpId layer : training.layers()) {
      if (constants.is_shared(layer) != shared) continue;
      number[at(layer.index())] = narrow<std::int32_t>(graph.size());
      std::vector<std::int32_t> before;
      for (OpId p : training.before[layer]) {
        if (shared || !constants.is_shared(p)) before.push_back(number[at(p.index())]);
      }
      std::sort(before.begin(), before.end());
      graph.before.push_back(std::move(before));
      graph.weight.push_back(1);
      graph.tree.push_back({layer, {}});
    }
  }
  std::vector<std::int32_t> block(training.num_layers());
  for (OpId layer : training.layers()) {
    block[at(number[at(layer.index())])] = number[at(constants.node_of(layer).index())];
    for (ValueId v : g.outputs[layer]) {
      PhaseGraph::Value value{g.bytes[v].count(), number[at(layer.index())], {}};
      for (OpId reader : g.readers[v]) {
        if (training.is_forward(reader)) value.readers.push_back(number[at(reader.index())]);
      }
      if (!value.readers.empty()) graph.values.push_back(std::move(value));
    }
  }
  std::vector<std::int32_t> dense(block.size(), -1);
  std::int32_t next = 0;
  for (std::int32_t& b : block) {
    if (dense[at(b)] < 0) dense[at(b)] = next++;
    b = dense[at(b)];
  }
  return contracted(std::move(graph), block);
}

std::vector<std::int32_t> cheapest_runs(const PhaseGraph& graph, std::int64_t most) {
  const auto n = std::ssize(graph);
  std::vector<double> crossing(graph.size() + 1, 0);  // before node i
  for (const PhaseGraph::Value& value : graph.values) {
    crossing[at(value.maker) + 1] += real(value.bytes);
    crossing[at(value.readers.back()) + 1] -= real(value.bytes);
  }
  for (std::size_t i = 1; i < crossing.size(); ++i) crossing[i] += crossing[i - 1];
  const double everything = *std::max_element(crossing.begin(), crossing.end());
  // Every run costs as well, or cuts where nothing crosses would come one after the other.
  const double run = 0.1 * everything + 1;
  std::vector<double> cost(graph.size() + 1, 0);
  std::vector<std::int64_t> from(graph.size() + 1, 0);
  for (std::int64_t end = 1; end <= n; ++end) {
    const auto e = narrow<std::size_t>(end);
    cost[e] = std::numeric_limits<double>::infinity();
    for (std::int64_t begin = std::max<std::int64_t>(0, end - most); begin < end; ++begin) {
      const auto b = narrow<std::size_t>(begin);
      const double one = cost[b] + crossing[b] + run;
      if (one >= cost[e]) continue;
      cost[e] = one;
      from[e] = begin;
    }
  }
  std::vector<std::int32_t> begins;
  for (std::int64_t end = n; end > 0; end = from[at(end)])
    begins.push_back(narrow<std::int32_t>(from[at(end)]));
  std::reverse(begins.begin(), begins.end());
  std::vector<std::int32_t> block(graph.size());
  for (std::size_t r = 0; r < begins.size(); ++r) {
    const std::size_t end = r + 1 < begins.size() ? at(begins[r + 1]) : graph.size();
    for (std::size_t u = at(begins[r]); u < end; ++u) block[u] = narrow<std::int32_t>(r);
  }
  return block;
}

PhaseGraph contracted(PhaseGraph graph, const std::vector<std::int32_t>& block) {
  const auto blocks = narrow<std::size_t>(*std::max_element(block.begin(), block.end())) + 1;
  std::vector<std::vector<std::int32_t>> before(blocks), nodes(blocks);
  std::vector<std::int32_t> smallest(blocks, -1);
  for (std::size_t u = 0; u < graph.size(); ++u) {
    nodes[at(block[u])].push_back(narrow<std::int32_t>(u));
    if (smallest[at(block[u])] < 0) smallest[at(block[u])] = narrow<std::int32_t>(u);
    for (std::int32_t p : graph.before[u]) {
      if (block[at(p)] != block[u]) before[at(block[u])].push_back(block[at(p)]);
    }
  }
  for (auto& list : before) sort_unique(list);
  const std::vector<std::int32_t> number = topological_numbers(before, smallest);
  PhaseGraph result;
  result.before.resize(blocks);
  result.weight.assign(blocks, 0);
  result.tree.resize(blocks);
  for (std::size_t b = 0; b < blocks; ++b) {
    const std::size_t n = at(number[b]);
    for (std::int32_t p : before[b]) result.before[n].push_back(number[at(p)]);
    std::sort(result.before[n].begin(), result.before[n].end());
    for (std::int32_t u : nodes[b]) {
      result.weight[n] += graph.weight[at(u)];
      if (nodes[b].size() == 1) {
        result.tree[n] = std::move(graph.tree[at(u)]);
      } else {
        result.tree[n].members.push_back(std::move(graph.tree[at(u)]));
      }
    }
  }
  for (PhaseGraph::Value& value : graph.values) {
    value.maker = number[at(block[at(value.maker)])];
    for (std::int32_t& reader : value.readers) reader = number[at(block[at(reader)])];
    sort_unique(value.readers);
    std::erase(value.readers, value.maker);
    if (!value.readers.empty()) result.values.push_back(std::move(value));
  }
  link_values(result);
  return result;
}

std::vector<std::int32_t> immediate_dominators(const PhaseGraph& graph) {
  AncestorTree tree(graph.size());
  std::vector<std::int32_t> dominator(graph.size(), -1);
  for (std::size_t x = 0; x < graph.size(); ++x) {
    std::int32_t common = 0;
    bool first = true;
    for (std::int32_t p : graph.before[x]) {
      common = first ? p + 1 : tree.common(common, p + 1);
      first = false;
    }
    tree.add(narrow<std::int32_t>(x) + 1, common);
    dominator[x] = common - 1;
  }
  return dominator;
}

}  // namespace remat::hiremate
