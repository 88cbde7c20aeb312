// The memory rule of docs/model.md as planners, bounds, layouts and reports read it: what a step takes beside
// the instances that are alive at it. Readers of files, the simulator and the checkers have the rule itself,
// and nothing else does (python/tests/test_cpp_layers.py).
#pragma once

#include <optional>
#include <ranges>
#include <span>
#include <vector>

#include "remat/graph.h"
#include "remat/plan.h"

namespace remat {

/// Bytes that a step of the op takes for itself while it runs.
inline Bytes momentary(const Graph& graph, OpId op) { return graph.workspace[op]; }

/// Where a step is the last to read an instance of `input`, it counts `bytes` less.
struct Reuse {
  ValueId input;
  Bytes bytes;
};

/// All of an op, by input. An input is that of one at most.
inline auto reuses(const Graph& graph, OpId op) {
  return std::views::transform(graph.over[op],
                               [&graph](const Over& pair) { return Reuse{pair.input, graph.overlap(pair)}; });
}
inline bool has_reuses(const Graph& graph) { return graph.over.entries() > 0; }
inline bool has_reuses(const Graph& graph, OpId op) { return !graph.over[op].empty(); }

/// What a step of the op counts less where it is the last to read an instance of the value; mostly 0.
Bytes reuse_of(const Graph& graph, OpId op, ValueId input);

/// Whether any step can be the last to read the value: the one instance of what runs once and is kept stays.
bool may_end(const Graph& graph, ValueId value);

/// Held from the first run of an op to its last where it runs more than once, and once more at each further
/// run.
inline Bytes rerun_state(const Graph& graph, OpId op) { return graph.generator_state[op]; }
inline bool has_rerun_states(const Graph& graph) { return graph.has_generator_states(); }
/// What the rerun states of no plan exceed at any step.
Bytes room_for_rerun_states(const Graph& graph);
/// Whether the op draws random numbers, so that its runs must be the same ones in the same sequence.
inline bool is_random(const Graph& graph, OpId op) { return graph.generator_state[op] > Bytes(); }

/// Resident inputs and the inputs, outputs and momentary bytes of one op: what its step takes with nothing
/// else, and with all reuse that may be.
Bytes need_of(const Graph& graph, OpId op);

/// What a value takes beside the need of `op` where it is in memory across its step: nothing where the op
/// reads it, but its reuse where the need counts on that.
Bytes bytes_beside(const Graph& graph, OpId op, ValueId value);

/// Bytes [first, end) of a plan that belong to no instance.
struct Extra {
  StepId first, end;
  Bytes bytes;
};
/// All of a plan that are not 0: the momentary ones by step, then rerun states.
std::vector<Extra> extras(const Graph& graph, const Plan& plan);
/// Their sum at each step.
IndexVector<StepId, Bytes> extra_bytes(const Graph& graph, const Plan& plan);

}  // namespace remat
