// The memory that an op takes by itself.
#pragma once

#include "remat/graph.h"

namespace remat {

/// Resident inputs and the inputs, outputs and workspace of one op: what its step takes with nothing else,
/// and with every output written over an input where that may be.
Bytes need_of(const Graph& graph, OpId op);

/// What a value takes beside the need of `op` where it is in memory across its step: nothing where the op
/// reads it, but its overlap where the need lets the op write over it.
Bytes bytes_beside(const Graph& graph, OpId op, ValueId v);

/// May a step write over the input? Not where its one instance is kept to the end.
bool may_apply(const Graph& graph, const Over& pair);

}  // namespace remat
