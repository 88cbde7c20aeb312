// Backward pebbling: a lower bound on the memory needed to bring a set of values into memory together.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "remat/graph.h"
#include "remat/plan.h"

namespace remat {

/// Walks a plan backwards from a moment at which a set of values is alive. Of the set, one was made last,
/// by a step that ran some op p; at that step the rest of the set was alive, and p's inputs, outputs and
/// workspace too. Before it, the rest and p's inputs were alive: a smaller instance of the same question.
///   {a, b}  --p = producer of b-->  {a} + inputs of p,   at a cost of a + b + inputs(p) + workspace(p)
/// A plan is one such walk down to the empty set, and its peak is at least the largest cost on the walk, so
/// the minimum over all walks is a bound (Kumar et al. 2019 use the same game forwards). The number of states
/// is exponential: the search stops after some units of work and claims only what it has proved.
class Pebbling {
 public:
  Pebbling(const Graph& graph, OrderMode order);

  /// Memory of a step that runs `op` while `alive` (sorted, no graph inputs) is in memory.
  Bytes need(OpId op, const std::vector<ValueId>& alive) const;

  /// A bound on the peak of every plan in which `alive` is in memory at one moment; `known` if nothing better
  /// is proved. Subtracts its work from `units`.
  Bytes raise(const std::vector<ValueId>& alive, Bytes known, std::int64_t& units);

 private:
  using State = std::vector<ValueId>;
  struct Successor {
    Bytes rest;
    State state;
    friend bool operator<(const Successor& a, const Successor& b) {
      return a.rest != b.rest ? a.rest > b.rest : a.state > b.state;
    }
  };
  /// What a search below a threshold found.
  enum class Outcome { kReachesEmpty, kExhausted, kGaveUp };

  Outcome search(const State& start, Bytes threshold, Bytes& cheapest_refused, std::int64_t& units);
  bool expand(const State& state, Bytes threshold, Bytes& cheapest_refused, std::vector<Successor>& out,
              std::int64_t& units) const;
  bool can_be_last(OpId op, const State& state) const;

  const Graph& graph_;
  OrderMode order_;
};

}  // namespace remat
