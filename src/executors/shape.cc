#include "executors/shape.h"

#include <algorithm>
#include <map>
#include <utility>

#include "base/numbers.h"
#include "graph/modules.h"
#include "graph/pairing.h"
#include "model/step.h"
#include "remat/error.h"

namespace remat::executors {
namespace {

class Finder {
 public:
  Finder(const Graph& graph, Executor executor) : graph_(graph) {
    shape_.graph = &graph;
    shape_.executor = executor;
    const auto pairing = find_pairing(graph);
    if (!pairing) {
      throw InputError("graph '" + graph.name + "' has no backward half, which the executor '" +
                       std::string(to_string(executor)) + "' needs");
    }
    shape_.first_backward = pairing->first_backward;
    shape_.region.assign(graph.num_ops(), -1);
    shape_.may.assign(graph.num_ops(), false);
    shape_.reaches.assign(graph.num_ops(), false);
    shape_.read_again.assign(graph.num_ops(), false);
  }

  Shape run() {
    for (OpId op : IdRange<OpId>(OpId(0), shape_.first_backward)) {
      shape_.may[op] = graph_.recomputable[op] && graph_.phase[op] != Phase::kUpdate && !is_kept(op);
    }
    if (shape_.executor == Executor::kCheckpoint) {
      find_regions();
      find_owners();
      for (int r : indices(shape_.regions)) find_trigger(shape_.regions[at(r)], r);
      drop_regions_without_trigger();
      for (OpId op : IdRange<OpId>(OpId(0), shape_.first_backward)) describe(op);
      for (const CheckpointRegion& region : shape_.regions) pin_random(region);
    } else {
      // The partitioner has random ops run once.
      for (OpId op : graph_.ops()) shape_.may[op] = shape_.may[op] && !is_random(graph_, op);
    }
    return std::move(shape_);
  }

 private:
  bool is_kept(OpId op) const {
    return std::ranges::any_of(graph_.outputs[op], [&](ValueId v) { return graph_.kept[v]; });
  }

  void find_regions() {
    std::string last;
    for (OpId op : IdRange<OpId>(OpId(0), shape_.first_backward)) {
      const std::string layer = layer_of(graph_.op_module[op]);
      if (!layer.empty() && layer != last) {
        shape_.regions.emplace_back();
        shape_.regions.back().name = layer;
      }
      last = layer;
      if (layer.empty()) continue;
      shape_.regions.back().ops.push_back(op);
      shape_.region[op] = narrow<int>(shape_.regions.size()) - 1;
    }
    if (shape_.regions.empty()) {
      throw InputError(
          "graph '" + graph_.name +
          "' has no ops of numbered modules ('layers.3.fc1'), which are the regions of the executor "
          "'checkpoint'");
    }
  }

  /// The region that a backward op belongs to: that of its forward op, else the only one of its module.
  void find_owners() {
    std::map<std::string, int> by_name;
    for (int r : indices(shape_.regions)) {
      const auto [entry, is_new] = by_name.emplace(shape_.regions[at(r)].name, r);
      if (!is_new) entry->second = -1;
    }
    for (OpId op : IdRange<OpId>(shape_.first_backward, OpId(graph_.ops().size()))) {
      if (graph_.phase[op] == Phase::kUpdate) continue;
      const OpId forward = graph_.forward_of[op];
      if (forward) {
        shape_.region[op] = shape_.region[forward];
      } else if (const auto named = by_name.find(layer_of(graph_.op_module[op])); named != by_name.end()) {
        shape_.region[op] = named->second;
      }
    }
  }

  /// The first value that its backward half unpacks, even a parameter, triggers a checkpoint's recomputation.
  void find_trigger(CheckpointRegion& region, int number) const {
    for (OpId op : IdRange<OpId>(shape_.first_backward, OpId(graph_.ops().size()))) {
      if (shape_.region[op] != number) continue;
      const bool unpacks = std::ranges::any_of(graph_.inputs[op], [&](ValueId v) {
        return graph_.is_graph_input(v) || shape_.is_forward(graph_.producer[v]);
      });
      if (!unpacks) continue;
      region.trigger = op;
      return;
    }
  }

  void drop_regions_without_trigger() {
    std::vector<CheckpointRegion> kept;
    std::vector<int> number;
    for (CheckpointRegion& region : shape_.regions) {
      number.push_back(region.trigger ? narrow<int>(kept.size()) : -1);
      if (region.trigger) kept.push_back(std::move(region));
    }
    if (kept.empty()) {
      throw InputError("graph '" + graph_.name +
                       "' does not say which backward ops are of which numbered module (by 'module' or "
                       "'forward_of'), which the executor 'checkpoint' needs");
    }
    shape_.regions = std::move(kept);
    for (int& region : shape_.region.raw()) region = region < 0 ? -1 : number[at(region)];
  }

  /// Decides whether a forward op may be recomputed with its region, from its readers.
  void describe(OpId op) {
    const int number = shape_.region[op];
    shape_.may[op] = shape_.may[op] && number >= 0;
    if (number < 0) return;
    const OpId trigger = shape_.regions[at(number)].trigger;
    for (ValueId v : graph_.outputs[op]) {
      for (OpId reader : graph_.readers[v]) {
        if (shape_.is_forward(reader)) {
          const int other = shape_.region[reader];
          if (other < 0 || other == number) continue;
          if (shape_.regions[at(other)].trigger > trigger) shape_.conflicts.emplace_back(op, reader);
          continue;
        }
        if (reader >= trigger) shape_.read_again[op] = true;
        if (shape_.region[reader] == number) {
          shape_.reaches[op] = true;
        } else if (reader >= trigger) {
          shape_.may[op] = false;  // held for others until then
        }
      }
    }
  }

  /// A random op that is not recomputed would shift the random numbers of later ones.
  void pin_random(const CheckpointRegion& region) {
    bool pinned = false;
    for (OpId op : region.ops) {
      if (!is_random(graph_, op)) continue;
      const bool held =
          std::ranges::any_of(shape_.conflicts, [&](const auto& pair) { return pair.first == op; });
      pinned = pinned || held || !shape_.may[op];
      if (pinned) shape_.may[op] = false;
    }
  }

  const Graph& graph_;
  Shape shape_;
};

/// One round of `settled` over all regions; true if something changed.
class Settling {
 public:
  Settling(const Shape& shape, Again& again) : shape_(shape), again_(again) {}

  bool round() {
    changed_ = false;
    for (const auto& [maker, reader] : shape_.conflicts) {
      if (again_[maker] && again_[reader]) set(maker, false);
    }
    for (const CheckpointRegion& region : shape_.regions) settle(region);
    return changed_;
  }

 private:
  void set(OpId op, bool value) {
    again_[op] = value;
    changed_ = true;
  }

  void settle(const CheckpointRegion& region) {
    bool reached = false;
    bool draws = false;  // a later random op is recomputed
    for (auto op = region.ops.rbegin(); op != region.ops.rend(); ++op) {
      reached = reached || (again_[*op] && shape_.reaches[*op]);
      if (again_[*op] && !reached) set(*op, false);
      const bool is_drawing = is_random(*shape_.graph, *op);
      const bool must = (is_drawing && draws) || !is_read_again(*op);
      if (reached && !again_[*op] && shape_.may[*op] && must && !in_conflict(*op)) set(*op, true);
      draws = draws || (is_drawing && again_[*op]);
    }
  }

  bool in_conflict(OpId op) const {
    return std::ranges::any_of(shape_.conflicts,
                               [&](const auto& pair) { return pair.first == op && again_[pair.second]; });
  }

  bool is_read_again(OpId op) const {
    if (shape_.read_again[op]) return true;
    const Graph& graph = *shape_.graph;
    const OpId trigger = shape_.regions[at(shape_.region[op])].trigger;
    for (ValueId v : graph.outputs[op]) {
      for (OpId reader : graph.readers[v]) {
        if (!shape_.is_forward(reader) || !again_[reader]) continue;
        if (shape_.regions[at(shape_.region[reader])].trigger >= trigger) return true;
      }
    }
    return false;
  }

  const Shape& shape_;
  Again& again_;
  bool changed_ = false;
};

}  // namespace

namespace {

/// Times of both copies of the forward half's values.
FetchPrices prices_of(const Shape& shape, const Host& host) {
  const Graph& graph = *shape.graph;
  const CopyClock clock(graph, host);
  FetchPrices prices(graph.num_values(), kMaxCount);
  for (ValueId v : graph.values()) {
    if (graph.is_graph_input(v) || !shape.is_forward(graph.producer[v])) continue;
    if (!graph.copyable[v] || graph.kept[v] || graph.bytes[v] == Bytes()) continue;
    const Wide time = clock.time(Way::kOut, graph.bytes[v]) + clock.time(Way::kIn, graph.bytes[v]);
    prices[v] = std::min(capped(time), kMaxCount);
  }
  return prices;
}

}  // namespace

Shape shape_of(const Graph& graph, Executor executor, const std::optional<Host>& host) {
  Shape shape = Finder(graph, executor).run();
  shape.host = host;
  if (host) shape.prices = prices_of(shape, *host);
  return shape;
}

std::optional<Shape> shape_if_any(const Graph& graph, Executor executor) {
  try {
    return shape_of(graph, executor);
  } catch (const InputError&) {
    return std::nullopt;
  }
}

std::optional<Again> settled(const Shape& shape, Again again) {
  for (OpId op : shape.graph->ops()) again[op] = again[op] && shape.may[op];
  if (shape.executor != Executor::kCheckpoint) return again;
  constexpr int kRounds = 50;
  Settling settling(shape, again);
  for (int i = 0; i < kRounds; ++i) {
    if (!settling.round()) return again;
  }
  return std::nullopt;
}

std::optional<Choice> settled(const Shape& shape, Choice choice) {
  auto again = settled(shape, std::move(choice.again));
  if (!again) return std::nullopt;
  choice.again = std::move(*again);
  for (ValueId v : shape.graph->values()) {
    if (!choice.offloads(v)) continue;
    choice.offloaded[v] = shape.prices[v] < kMaxCount && !choice.again[shape.graph->producer[v]];
  }
  return choice;
}

std::vector<OpId> asked_by(const Graph& graph, OpId op, const Again& away) {
  std::vector<OpId> found, pending{op};
  IndexVector<OpId, bool> seen(graph.num_ops(), false);
  while (!pending.empty()) {
    const OpId next = pending.back();
    pending.pop_back();
    for (ValueId v : graph.inputs[next]) {
      const OpId maker = graph.producer[v];
      if (!maker || !away[maker] || seen[maker]) continue;
      seen[maker] = true;
      found.push_back(maker);
      pending.push_back(maker);
    }
  }
  std::ranges::sort(found);
  return found;
}

Plan plan_of(const Shape& shape, const Again& again) {
  const Graph& graph = *shape.graph;
  Plan plan;
  for (OpId op : IdRange<OpId>(OpId(0), shape.first_backward)) plan.steps.push_back(op);
  Again away = again;
  std::multimap<OpId, const CheckpointRegion*> triggered;
  for (const CheckpointRegion& region : shape.regions) triggered.emplace(region.trigger, &region);
  for (OpId op : IdRange<OpId>(shape.first_backward, OpId(graph.ops().size()))) {
    if (shape.executor == Executor::kCheckpoint) {
      for (auto [one, end] = triggered.equal_range(op); one != end; ++one) {
        for (OpId inside : one->second->ops) {
          if (again[inside]) plan.steps.push_back(inside);
        }
      }
    } else {
      for (OpId maker : asked_by(graph, op, away)) {
        plan.steps.push_back(maker);
        away[maker] = false;
      }
    }
    plan.steps.push_back(op);
  }
  return plan;
}

Plan plan_of(const Shape& shape, const Choice& choice) {
  const Graph& graph = *shape.graph;
  Plan plan = plan_of(shape, choice.again);
  if (choice.offloaded.empty()) return plan;
  const StepId turn(shape.first_backward.index());
  IndexVector<ValueId, StepId> last(graph.num_values()), back(graph.num_values());
  for (StepId step : plan.steps.ids()) {
    const OpId op = plan.steps[step];
    if (step < turn) {
      for (ValueId v : graph.outputs[op]) last[v] = step;
    }
    for (ValueId v : graph.inputs[op]) {
      if (step < turn) last[v] = step;
      if (step >= turn && !back[v]) back[v] = step;
    }
  }
  for (ValueId v : graph.values()) {
    if (!choice.offloads(v) || !back[v]) continue;
    plan.copies.push_back({v, Way::kOut, last[v], last[v].next()});
    plan.copies.push_back({v, Way::kIn, back[v], back[v]});
  }
  std::ranges::stable_sort(plan.copies, {}, &Copy::issue);
  return plan;
}

}  // namespace remat::executors
