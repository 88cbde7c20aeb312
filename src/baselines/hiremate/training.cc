// Layers: which backward op belongs to which forward op.
#include <algorithm>
#include <map>
#include <set>

#include "base/numbers.h"
#include "base/sorted.h"
#include "graph/pairing.h"
#include "remat/error.h"
#include "remat/hiremate.h"

namespace remat::hiremate {
namespace {

/// Pairs backward ops in the graph's order. Invariant: the layer of an op is not after the layer of any
/// backward op that it depends on, so that layers can run backwards one by one.
class Pairer {
 public:
  Pairer(const Graph& graph, OpId first_backward)
      : graph_(graph), first_backward_(first_backward), layer_(graph.num_ops()) {}

  IndexVector<OpId, OpId> run() {
    for (OpId op : graph_.ops()) layer_[op] = op < first_backward_ ? op : layer_of(op);
    return std::move(layer_);
  }

 private:
  OpId layer_of(OpId op) {
    OpId latest = first_backward_.prev();
    int gradients = 0, activations = 0;
    for (ValueId v : graph_.inputs[op]) {
      const OpId maker = graph_.producer[v];
      if (!maker) continue;
      if (maker < first_backward_) {
        ++activations;
        continue;
      }
      ++gradients;
      latest = std::min(latest, layer_[maker]);
    }
    for (OpId before : graph_.after[op]) {
      if (before >= first_backward_) latest = std::min(latest, layer_[before]);
    }
    // A sum of gradients runs as soon as the last of them is there.
    if (gradients > 1 && activations == 0) return latest;
    const OpId given = graph_.forward_of[op];
    if (given && given < first_backward_) return std::min(given, latest);
    return std::min(latest, derived(op, latest, activations > 0));
  }

  /// The forward op up to `latest` that fits best: it makes or reads the activations that the op reads (an op
  /// without activations: those of its siblings, the readers of the same gradients), and its outputs are as
  /// large as the gradients that the op reads. The last of equals.
  OpId derived(OpId op, OpId latest, bool has_activations) const {
    std::map<OpId, int> points;
    for (ValueId v : graph_.inputs[op]) {
      const OpId maker = graph_.producer[v];
      if (!maker) continue;
      if (maker < first_backward_) {
        offer(v, latest, points);
      } else if (!has_activations) {
        for (OpId sibling : graph_.readers[v]) {
          for (ValueId w : graph_.inputs[sibling]) {
            if (graph_.producer[w] && graph_.producer[w] < first_backward_) offer(w, latest, points);
          }
        }
      }
    }
    OpId best = latest;
    int most = 0;
    for (const auto& [layer, count] : points) {
      const int all = 2 * count + (has_output_like_gradient(op, layer) ? 3 : 0);
      if (all < most) continue;
      most = all;
      best = layer;
    }
    return best;
  }

  /// A point for the maker and the last readers of an activation.
  void offer(ValueId v, OpId latest, std::map<OpId, int>& points) const {
    if (graph_.producer[v] <= latest) ++points[graph_.producer[v]];
    const auto readers = graph_.readers[v];
    const auto end =
        std::upper_bound(readers.begin(), readers.end(), std::min(latest, first_backward_.prev()));
    const auto begin = end - std::min<std::ptrdiff_t>(kMostReaders, end - readers.begin());
    for (auto reader = begin; reader != end; ++reader) ++points[*reader];
  }

  bool has_output_like_gradient(OpId op, OpId layer) const {
    for (ValueId v : graph_.inputs[op]) {
      if (!graph_.producer[v] || graph_.producer[v] < first_backward_) continue;
      for (ValueId w : graph_.outputs[layer]) {
        if (graph_.bytes[v] == graph_.bytes[w]) return true;
      }
    }
    return false;
  }

  static constexpr std::ptrdiff_t kMostReaders = 32;

  const Graph& graph_;
  OpId first_backward_;
  IndexVector<OpId, OpId> layer_;
};

using Edges = std::vector<std::pair<OpId, OpId>>;  // (after, before)

Rows<OpId, OpId> rows_of(const Edges& edges, OpId end) {
  Rows<OpId, OpId> rows;
  std::size_t next = 0;
  for (OpId op(0); op < end; ++op) {
    for (; next < edges.size() && edges[next].first == op; ++next) rows.push(edges[next].second);
    rows.end_row();
  }
  return rows;
}

/// Is there a path to `after`? Looks at a limited number of layers; "no" may be wrong.
bool leads_to(const Rows<OpId, OpId>& before, OpId from, OpId after) {
  constexpr std::size_t kMostLayers = 256;
  std::vector<OpId> stack{after};
  std::set<OpId> seen;
  while (!stack.empty() && seen.size() < kMostLayers) {
    const OpId layer = stack.back();
    stack.pop_back();
    for (OpId p : before[layer]) {
      if (p == from) return true;
      if (p > from && seen.insert(p).second) stack.push_back(p);
    }
  }
  return false;
}

/// Forward edges, and backward edges turned round where they say more than the forward edges do: an edge that
/// follows from others would only hide where the graph can be cut.
Rows<OpId, OpId> edges_between(const Graph& graph, OpId first_backward,
                               const IndexVector<OpId, OpId>& layer) {
  Edges forward, soft;
  const auto add = [&](OpId before, OpId after) {
    if (after < first_backward) {
      forward.emplace_back(after, before);
    } else if (before >= first_backward && layer[before] != layer[after]) {
      soft.emplace_back(layer[before], layer[after]);
    }
  };
  for (OpId op : graph.ops()) {
    for (ValueId v : graph.inputs[op]) {
      if (!graph.is_graph_input(v)) add(graph.producer[v], op);
    }
    for (OpId before : graph.after[op]) add(before, op);
  }
  sort_unique(forward);
  sort_unique(soft);
  const Rows<OpId, OpId> rows = rows_of(forward, first_backward);
  for (const auto& [after, before] : soft) {
    if (!leads_to(rows, before, after)) forward.emplace_back(after, before);
  }
  sort_unique(forward);
  return rows_of(forward, first_backward);
}

}  // namespace

TrainingGraph pair_layers(const Graph& graph) {
  const auto pairing = find_pairing(graph);
  if (!pairing) throw UsageError("the graph has no backward pass that phases name or its structure shows");
  TrainingGraph training;
  training.graph = &graph;
  training.first_backward = pairing->first_backward;
  training.layer = Pairer(graph, pairing->first_backward).run();
  std::vector<std::vector<OpId>> backward(training.num_layers());
  for (OpId op : graph.ops()) {
    if (!training.is_forward(op)) backward[at(training.layer[op])].push_back(op);
  }
  for (const auto& ops : backward) training.backward.append_row(ops);
  training.before = edges_between(graph, training.first_backward, training.layer);
  return training;
}

}  // namespace remat::hiremate
