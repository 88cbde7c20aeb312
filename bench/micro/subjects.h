// Graphs that the micro benchmarks measure on: training steps made by the generators.
#pragma once

#include "remat/generate.h"
#include "remat/graph.h"
#include "remat/plan.h"
#include "remat/planner.h"

namespace remat::bench {

/// A GPT of this depth: 43 ops a layer and some more, durations by the roofline of an A100.
inline Graph gpt(std::int64_t depth) {
  TrainingOptions options;
  options.model = "gpt";
  options.settings.depth = depth;
  options.device = parse_device("a100");
  return training_graph(options);
}

/// A budget in percent of the keep-all peak.
inline Bytes percent(const Graph& graph, std::int64_t share) {
  return Bytes(simulate(graph, keep_all_plan(graph)).peak.count() / 100 * share);
}

/// A plan with recomputations at three quarters of the keep-all peak, made by the planner `evict`.
inline Plan tight_plan(const Graph& graph) {
  Limits limits;
  return *make_plan({&graph, percent(graph, 75)}, "evict", {}, limits).plan;
}

}  // namespace remat::bench
