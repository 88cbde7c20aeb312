// Tiny random layout problems, and their smallest arena by brute force.
#pragma once

#include <optional>
#include <span>
#include <string>

#include "remat/layout.h"
#include "remat/random.h"

namespace remat::testing {

/// 1 to `most` buffers of 0 to 12 bytes, in at most eight moments; alignments of 1 to 5.
LayoutProblem random_buffers(Random& random, int most);

/// The smallest arena of all layouts. Exponential.
Bytes oracle_arena(const LayoutProblem& problem);

/// Two buffers that share a moment and a byte, or a broken alignment, or an end outside the arena; empty
/// where there is none. Quadratic.
std::string fault_of(const LayoutProblem& problem, std::span<const Bytes> offsets, Bytes arena);

/// As a table that `remat layout` reads.
std::string table_of(const LayoutProblem& problem);

}  // namespace remat::testing
