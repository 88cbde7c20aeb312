// The memory rule of docs/model.md for planners, bounds, layouts and reports: what a step takes in addition
// to the live instances. Only readers of files, the simulator and the checkers read the raw rule
// (python/tests/test_cpp_layers.py).
#pragma once

#include <ranges>
#include <vector>

#include "remat/graph.h"
#include "remat/plan.h"

namespace remat {

/// Bytes that a step of the op takes for itself while it runs.
inline Bytes momentary(const Graph& graph, OpId op) { return graph.workspace[op]; }

/// A step that is the last to read an instance of `input` takes `bytes` less.
struct Reuse {
  ValueId input;
  Bytes bytes;
};

/// All reuses of an op, by input; at most one per input.
inline auto reuses(const Graph& graph, OpId op) {
  return std::views::transform(graph.over[op],
                               [&graph](const Over& pair) { return Reuse{pair.input, graph.overlap(pair)}; });
}
inline bool has_reuses(const Graph& graph) { return graph.over.entries() > 0; }
inline bool has_reuses(const Graph& graph, OpId op) { return !graph.over[op].empty(); }

/// Bytes that a step of the op takes less if it is the last to read an instance of the value; mostly 0.
Bytes reuse_of(const Graph& graph, OpId op, ValueId input);

/// False if no step can be the last to read the value: a kept one whose op runs once stays in memory.
bool may_end(const Graph& graph, ValueId value);

/// Bytes held from the first run of a recomputed op to its last, and once more at each further run.
inline Bytes rerun_state(const Graph& graph, OpId op) { return graph.generator_state[op]; }
inline bool has_rerun_states(const Graph& graph) { return graph.has_generator_states(); }
/// An upper bound on the rerun states at any step of any plan.
Bytes room_for_rerun_states(const Graph& graph);
/// True if the op draws random numbers: its runs must then draw the same ones, in the same sequence.
inline bool is_random(const Graph& graph, OpId op) { return graph.generator_state[op] > Bytes(); }

/// Least memory of a step of the op: resident inputs, its inputs, outputs and momentary bytes, less all
/// possible reuse.
Bytes need_of(const Graph& graph, OpId op);

/// Additional bytes over `need_of` if the value is in memory across a step of `op`: 0 if the op reads it,
/// except the reuse that the need assumed.
Bytes bytes_beside(const Graph& graph, OpId op, ValueId value);

/// Bytes [first, end) of a plan that belong to no instance.
struct Extra {
  StepId first, end;
  Bytes bytes;
};
/// All of a plan that are not 0: momentary bytes by step, then rerun states.
std::vector<Extra> extras(const Graph& graph, const Plan& plan);
/// Their sum at each step.
IndexVector<StepId, Bytes> extra_bytes(const Graph& graph, const Plan& plan);

}  // namespace remat
