// A training step as a chain of blocks: where one value passes forward and one gradient back.
#pragma once

#include <string>
#include <vector>

#include "remat/graph.h"

namespace remat::pipeline {

/// Ops between two cuts. `received` passes the first cut, `sent` the last; they and their gradients are none
/// at the ends of a graph.
struct Block {
  const Graph* graph = nullptr;
  int source = 0;  ///< which graph, or which copy of one
  std::string name;
  std::vector<OpId> forward, backward;
  ValueId received, sent;                    ///< forward
  ValueId gradient_received, gradient_sent;  ///< backward
  std::vector<ValueId> data;                 ///< graph inputs that come with each micro-batch, ascending
  std::vector<ValueId> held;  ///< other graph inputs: parameters and optimizer state, ascending
  Bytes gradients;            ///< of parameters
  bool is_module = true;      ///< all its forward ops are of one numbered module, if the graph has any
};

struct CutOptions {
  bool whole_layers = true;
  std::vector<std::string> data = {};  ///< names of graph inputs
};

/// A cut lies before forward op t and backward op r if forward ops from t on read only one forward value made
/// before t, backward ops before r read no other of these, backward ops from r on read no forward value made
/// from t on, and one gradient passes r. Gradients of parameters do not count, nor do partial ones that an op
/// adds up (tied weights). With whole layers, only where the module up to its first number changes, if any
/// has one. Throws InputError for a graph without a backward half.
std::vector<Block> cut_into_blocks(const Graph& graph, const CutOptions& options);

}  // namespace remat::pipeline
