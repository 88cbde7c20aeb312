// Consecutive blocks with several micro-batches in flight, as a graph for the reference simulator.
#pragma once

#include <span>
#include <vector>

#include "pipeline/blocks.h"
#include "remat/pipeline.h"

namespace remat::pipeline {

/// One block of a part, and how it runs.
struct Placed {
  const Block* block;
  const BlockChoice* choice;
  int chunk = 0;  ///< blocks of another chunk are not joined to those before
};

/// The graph of one turn after the other, and the plan that the choices make of it.
///
///   micro-batch   0         1         0               1
///   ops           receive f receive f turn b b send   turn b b send
///
/// Held values are graph inputs, with one more for gradients and their state. Received values are made by an
/// op that takes no time, and sent values are read by one.
struct Part {
  Graph graph;
  Plan plan;
  OpId turn;                ///< that begins the first backward half
  Bytes incoming;           ///< of the gradient that it receives
  std::vector<int> origin;  ///< of a part of one block and one micro-batch: position of each op in it, or -1
};

/// `turns`: halves of micro-batches, by chunk. state: bytes for each byte of gradients.
Part build_part(std::span<const Placed> placed, std::span<const Turn> turns, int state, bool named);

/// `count` forward halves, then `count` backward halves.
std::vector<Turn> turns_in_flight(int count);

/// Parameters, gradients and state.
Bytes held_by(std::span<const Placed> placed, int state);

/// All forward ops, then all backward ops.
BlockChoice keep_all(const Block& block);

}  // namespace remat::pipeline
