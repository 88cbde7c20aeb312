// Partitions without a search: a sequence of blocks, and no groups at all.
#include <algorithm>

#include "base/numbers.h"
#include "remat/hiremate.h"

namespace remat::hiremate {
namespace {

/// Ends a block at each layer that is the only one before it to be read after it: an articulation point of
/// the forward graph. Layers between two of them form a group.
class Sequence final : public Partitioner {
 public:
  std::string name() const override { return "sequence"; }
  Nested partition(const TrainingGraph& training, Limits&) const override {
    // The last layer that reads what a layer makes. Constants that many layers read do not count, nor does
    // the order of the backward pass: blocks are runs of the graph's own order.
    const Graph& graph = *training.graph;
    IndexVector<OpId, OpId> last(training.num_layers());
    std::vector<bool> constant(training.num_layers());
    for (OpId layer : training.layers()) {
      last[layer] = layer;
      bool of_constants = training.backward[layer].empty();
      for (ValueId v : graph.inputs[layer]) {
        const OpId maker = graph.producer[v];
        if (!maker) continue;
        if (!constant[at(maker)]) {
          last[maker] = layer;
          of_constants = false;
        }
      }
      constant[at(layer)] = of_constants;
    }
    Nested root;
    Nested block;
    OpId reach(0);  // of all layers but the one at hand
    for (OpId layer : training.layers()) {
      block.members.push_back({layer, {}});
      const bool is_cut = reach <= layer;
      reach = std::max(reach, last[layer]);
      if (!is_cut && layer.next() != training.first_backward) continue;
      root.members.push_back(block.members.size() == 1 ? block.members.front() : std::move(block));
      block = {};
    }
    return root;
  }
};

class SingleLevel final : public Partitioner {
 public:
  std::string name() const override { return "single_level"; }
  Nested partition(const TrainingGraph& training, Limits&) const override {
    Nested root;
    for (OpId layer : training.layers()) root.members.push_back({layer, {}});
    return root;
  }
};

}  // namespace

std::shared_ptr<const Partitioner> sequence() { return std::make_shared<Sequence>(); }
std::shared_ptr<const Partitioner> single_level() { return std::make_shared<SingleLevel>(); }

}  // namespace remat::hiremate
