// H-Partition (section 3.1, appendix A), bottom to top.
//
// a(x), the closest common ancestor of the predecessors of x, is its immediate dominator: every path to x
// leads through it, so the nodes between a(x) and x can be entered through a(x) only. A set C with a head h
// (inside or not) that reaches all of C, and into which all edges to nodes other than h come from C or h, is
// convex; so are unions of two such sets that meet; and a cycle through several disjoint ones would be a
// cycle of the graph. (The paper's Property 1 asks the same of u = h too, which candidates that hold a(x) do
// not meet; its proofs do not need it.) So all groups of a round may become nodes at once.
//
// Near n log n for a fixed M_l: 4 candidates a node of at most M_l nodes, each of which grows at most M_l
// times; jump pointers for the ancestors; a heap.
#include <algorithm>
#include <cmath>
#include <queue>
#include <tuple>

#include "base/numbers.h"
#include "base/sorted.h"
#include "baselines/hiremate/phase_graph.h"

namespace remat::hiremate {
namespace {

using Node = std::int32_t;
using Nodes = std::vector<Node>;

/// One round: candidates, the best first, until M_t nodes are left or there are no candidates.
class Round {
 public:
  Round(const PhaseGraph& graph, const Settings& settings, Limits& limits)
      : graph_(graph),
        settings_(settings),
        limits_(limits),
        most_(narrow<std::size_t>(settings.most_lower)),
        left_(graph.size()),
        block_(graph.size(), -1),
        touching_(graph.size()),
        inside_(graph.size(), 0),
        counted_(graph.values.size(), 0) {}

  /// The block of each node, 0, 1, ...; empty where nothing was grouped.
  std::vector<Node> run() {
    form_candidates();
    bool any = false;
    while (left_ > narrow<std::size_t>(settings_.most_top) && !heap_.empty()) {
      const Entry best = heap_.top();
      heap_.pop();
      Candidate& candidate = candidates_[best.candidate];
      if (candidate.nodes.empty() || candidate.version != best.version) continue;
      if (limits_.spend(1)) break;
      const Nodes group = std::move(candidate.nodes);
      candidate.nodes.clear();
      wrap(group);
      update(group);
      any = true;
    }
    return any ? numbered() : std::vector<Node>();
  }

 private:
  struct Candidate {
    Nodes nodes;  ///< ascending; empty: no longer a candidate
    std::int32_t version = 0;
  };
  struct Entry {
    double score;
    Node first;  ///< smallest node
    std::size_t candidate;
    std::int32_t version;
    bool operator<(const Entry& other) const {  // the smallest on top
      return std::tuple(score, first, candidate, version) >
             std::tuple(other.score, other.first, other.candidate, other.version);
    }
  };

  void form_candidates() {
    const std::vector<Node> dominator = immediate_dominators(graph_);
    for (std::size_t x = 0; x < graph_.size(); ++x) {
      if (graph_.before[x].empty() || limits_.spend(1)) continue;
      Nodes between;
      if (!collect(narrow<Node>(x), dominator[x], between)) continue;
      for (const bool with_end : {false, true}) {
        for (const bool with_head : {false, true}) {
          Nodes nodes = between;
          if (with_end) nodes.push_back(narrow<Node>(x));
          if (with_head && dominator[x] >= 0) nodes.push_back(dominator[x]);
          if (with_head && dominator[x] < 0) continue;
          std::sort(nodes.begin(), nodes.end());
          add(std::move(nodes));
        }
      }
    }
  }

  /// Nodes on paths from the head to x, both excluded; false where they are too many.
  bool collect(Node x, Node head, Nodes& between) {
    ++mark_;
    Nodes stack{x};
    while (!stack.empty()) {
      const Node u = stack.back();
      stack.pop_back();
      for (Node p : graph_.before[at(u)]) {
        if (p == head || inside_[at(p)] == mark_) continue;
        inside_[at(p)] = mark_;
        between.push_back(p);
        if (between.size() > most_) return false;
        stack.push_back(p);
      }
    }
    return true;
  }

  void add(Nodes nodes) {
    if (nodes.size() < 2 || nodes.size() > most_) return;
    const std::size_t id = candidates_.size();
    for (Node u : nodes) touching_[at(u)].push_back(id);
    heap_.push({score(nodes), nodes.front(), id, 0});
    candidates_.push_back({std::move(nodes), 0});
  }

  /// Equation (1). Values from outside the graph (inputs of the model) do not count.
  double score(const Nodes& nodes) {
    ++mark_;
    std::int64_t weight = 0, bytes = 0;
    for (Node u : nodes) inside_[at(u)] = mark_;
    for (Node u : nodes) {
      weight += graph_.weight[at(u)];
      for (std::int32_t v : graph_.made[at(u)]) {
        const auto& readers = graph_.values[at(v)].readers;
        if (std::any_of(readers.begin(), readers.end(), [&](Node r) { return inside_[at(r)] != mark_; }))
          bytes += graph_.values[at(v)].bytes;
      }
      for (std::int32_t v : graph_.read[at(u)]) {
        if (inside_[at(graph_.values[at(v)].maker)] == mark_ || counted_[at(v)] == mark_) continue;
        counted_[at(v)] = mark_;
        bytes += graph_.values[at(v)].bytes;
      }
    }
    const double share = real(weight) / real(nodes.size());
    return real(bytes) * std::pow(share, settings_.alpha);
  }

  void wrap(const Nodes& group) {
    // Parts that were blocks before are whole inside, each counted once.
    Nodes before;
    std::size_t parts = 0;
    for (Node u : group) {
      if (block_[at(u)] < 0) {
        ++parts;
      } else {
        before.push_back(block_[at(u)]);
      }
      block_[at(u)] = group.front();
    }
    std::sort(before.begin(), before.end());
    parts += narrow<std::size_t>(std::unique(before.begin(), before.end()) - before.begin());
    left_ -= parts - 1;
  }

  /// Candidates that meet the group take all of it in, or go where they become too large.
  void update(const Nodes& group) {
    std::vector<std::size_t> met;
    for (Node u : group) met.insert(met.end(), touching_[at(u)].begin(), touching_[at(u)].end());
    sort_unique(met);
    for (std::size_t id : met) {
      Candidate& candidate = candidates_[id];
      if (candidate.nodes.empty()) continue;
      Nodes all, added;
      std::set_union(candidate.nodes.begin(), candidate.nodes.end(), group.begin(), group.end(),
                     std::back_inserter(all));
      if (all.size() > most_ || all.size() == group.size()) {
        candidate.nodes.clear();
        continue;
      }
      if (all.size() == candidate.nodes.size()) continue;
      std::set_difference(group.begin(), group.end(), candidate.nodes.begin(), candidate.nodes.end(),
                          std::back_inserter(added));
      for (Node u : added) touching_[at(u)].push_back(id);
      heap_.push({score(all), all.front(), id, ++candidate.version});
      candidate.nodes = std::move(all);
    }
    for (Node u : group) {
      std::erase_if(touching_[at(u)], [&](std::size_t id) { return candidates_[id].nodes.empty(); });
    }
    limits_.spend(std::ssize(met));
  }

  std::vector<Node> numbered() const {
    std::vector<Node> number(graph_.size(), -1), result(graph_.size());
    Node next = 0;
    for (std::size_t u = 0; u < graph_.size(); ++u) {
      const std::size_t head = block_[u] < 0 ? u : at(block_[u]);
      if (number[head] < 0) number[head] = next++;
      result[u] = number[head];
    }
    return result;
  }

  const PhaseGraph& graph_;
  const Settings& settings_;
  Limits& limits_;
  std::size_t most_, left_;
  std::vector<Node> block_;  ///< smallest node of the group of a node, or -1
  std::vector<Candidate> candidates_;
  std::vector<std::vector<std::size_t>> touching_;  ///< candidates that hold a node
  std::priority_queue<Entry> heap_;
  std::int64_t mark_ = 0;
  std::vector<std::int64_t> inside_, counted_;  ///< equal to mark_: yes
};

class HPartition final : public Partitioner {
 public:
  explicit HPartition(const Settings& settings) : settings_(settings) {}
  std::string name() const override { return "h_partition"; }

  Nested partition(const TrainingGraph& training, Limits& limits) const override {
    PhaseGraph graph = phase_graph(training);
    while (graph.size() > narrow<std::size_t>(settings_.most_top)) {
      const std::size_t size = graph.size();
      const std::vector<Node> block = Round(graph, settings_, limits).run();
      if (!block.empty()) graph = contracted(std::move(graph), block);
      // Where nodes with several entries (cross attention, skips) block the candidates, the order helps on.
      const bool slow = graph.size() > size - size / 3;
      if (slow && graph.size() > narrow<std::size_t>(settings_.most_top)) {
        // Not shorter than it needs to be: what is left at the top is solved best.
        const auto nodes = std::ssize(graph);
        const std::int64_t enough = (3 * nodes + 2 * settings_.most_top - 1) / (2 * settings_.most_top);
        const std::vector<Node> runs =
            cheapest_runs(graph, std::clamp<std::int64_t>(enough, 2, settings_.most_lower));
        graph = contracted(std::move(graph), runs);
      }
    }
    return {OpId(), std::move(graph.tree)};
  }

 private:
  Settings settings_;
};

}  // namespace

std::shared_ptr<const Partitioner> h_partition(const Settings& settings) {
  return std::make_shared<HPartition>(settings);
}

}  // namespace remat::hiremate
