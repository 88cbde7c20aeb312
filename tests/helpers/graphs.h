// Graphs for tests: named shapes with a drawing each, seeded random tiny ones, and plans of them.
#pragma once

#include <array>
#include <initializer_list>
#include <string>
#include <vector>

#include "remat/generate.h"
#include "remat/graph.h"
#include "remat/plan.h"
#include "remat/random.h"

namespace remat::testing {

/// One op for `make_graph`: value indices count graph inputs first, then outputs in order of the ops.
struct TestOp {
  std::vector<std::int64_t> inputs;
  std::vector<std::int64_t> output_bytes;
  std::int64_t duration = 1;
  std::int64_t workspace = 0;
  bool recomputable = true;
  std::vector<std::int64_t> after = {};
  std::vector<std::array<std::int64_t, 2>> over = {};
  std::int64_t generator_state = 0;
};

/// Values are numbered in the order in which they come: graph inputs, then the outputs of op 0, op 1, ...
Graph make_graph(const std::vector<std::int64_t>& input_bytes, const std::vector<TestOp>& ops,
                 const std::vector<std::int64_t>& outputs);

/// A chain of n forward ops of `bytes` each and its n backward ops; backward i reads the output of forward
/// i - 1 and the gradient of i + 1. Two forward ops are drawn:
///   f0 -> f1 -> b1 -> b0      b1 reads f0 (and f1), b0 reads b1
///    \__________^
Graph training_chain(int layers, std::int64_t bytes = 1, std::int64_t duration = 1);

/// Of a generated model, with the durations of an A100's roofline.
Graph training_step(const std::string& model, const ModelSettings& settings = {});

/// Features of random graphs.
struct RandomShape {
  int min_ops = 2;
  int max_ops = 7;
  int max_values = 9;        ///< outputs of ops together
  bool multi_output = true;  ///< ops with zero or two outputs
  bool graph_inputs = true;
  bool workspaces = true;
  bool never_recompute = true;
  bool after = true;
  bool kept_outputs = true;
  double over = 0.33;   ///< chance that outputs may be written over inputs
  double states = 0.2;  ///< chance that some ops draw random numbers
};
/// The graph is recorded, and printed if the test fails (reproduce.h).
Graph random_graph(Random& random, const RandomShape& shape = {});

/// Runs these ops, in this order.
Plan plan_of(std::initializer_list<int> ops);
/// A valid plan in fixed order with random recomputations.
Plan random_plan(const Graph& graph, Random& random, int extra_steps);

/// Bytes at each step of a plan, by the simulator.
std::vector<std::int64_t> memory_of(const Graph& graph, const Plan& plan);

}  // namespace remat::testing
