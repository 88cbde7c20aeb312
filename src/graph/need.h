// The memory that an op takes by itself.
#pragma once

#include "remat/graph.h"

namespace remat {

/// Resident inputs and the inputs, outputs and workspace of one op: what its step takes with nothing else.
Bytes need_of(const Graph& graph, OpId op);

}  // namespace remat
