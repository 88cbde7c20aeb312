// Bounds and retention: cuts through one moment, minimum cuts, and the plans made of them.
#include <benchmark/benchmark.h>

#include "bounds/cut.h"
#include "exact/retention_cut.h"
#include "graph/max_flow.h"
#include "planners/retention/retention.h"
#include "remat/bounds.h"
#include "remat/random.h"
#include "subjects.h"

namespace remat {
namespace {

constexpr std::int64_t kMostTicks = 100'000'000;

void fixed_cut(benchmark::State& state) {
  const Graph graph = bench::gpt(state.range(0));
  const Bytes budget = bench::percent(graph, 75);
  for (auto _ : state) benchmark::DoNotOptimize(fixed_cut_bound(graph, budget).duration);
  state.SetItemsProcessed(static_cast<std::int64_t>(graph.num_ops()) * state.iterations());
}
BENCHMARK(fixed_cut)->Arg(12)->Arg(200)->Unit(benchmark::kMicrosecond);

void free_cut(benchmark::State& state) {
  const Graph graph = bench::gpt(state.range(0));
  const Bytes budget = bench::percent(graph, 75);
  for (auto _ : state) benchmark::DoNotOptimize(free_cut_bound(graph, budget).duration);
}
BENCHMARK(free_cut)->Arg(12)->Arg(50)->Unit(benchmark::kMillisecond);

void peak_bound(benchmark::State& state) {
  const Graph graph = bench::gpt(state.range(0));
  for (auto _ : state) benchmark::DoNotOptimize(best_peak_bound(graph, OrderMode::kFixed).peak);
}
BENCHMARK(peak_bound)->Arg(12)->Arg(200)->Unit(benchmark::kMillisecond);

/// The best choice at the moment where the cut bound is highest.
void retention_choice(benchmark::State& state) {
  const Graph graph = bench::gpt(state.range(0));
  const Bytes budget = bench::percent(graph, 75);
  OpId at;
  fixed_cut_bound(graph, budget, &at);
  for (auto _ : state) {
    benchmark::DoNotOptimize(solve_retention(graph, at, budget, OrderMode::kFixed, kMostTicks).bound);
  }
}
BENCHMARK(retention_choice)->Arg(12)->Arg(200)->Unit(benchmark::kMillisecond);

void retention_plans(benchmark::State& state) {
  const Graph graph = bench::gpt(state.range(0));
  const Bytes budget = bench::percent(graph, 75);
  for (auto _ : state) {
    Limits limits;
    benchmark::DoNotOptimize(retention::candidate_plans(graph, budget, limits).size());
  }
}
BENCHMARK(retention_plans)->Arg(12)->Arg(200)->Unit(benchmark::kMillisecond);

/// Minimum cut of a random network with four arcs a node.
void max_flow(benchmark::State& state) {
  constexpr std::int64_t kArcs = 4;
  const std::int64_t nodes = state.range(0);
  Random random(1);
  MaxFlow network;
  for (std::int64_t v = 0; v < nodes; ++v) network.add_node();
  std::vector<MaxFlow::Arc> arcs;
  const auto any = [&] { return static_cast<MaxFlow::Node>(random.below(nodes + 2)); };
  for (std::int64_t i = 0; i < kArcs * nodes; ++i) arcs.push_back(network.add_arc(any(), any()));
  for (const MaxFlow::Arc arc : arcs) network.set_capacity(arc, random.between(1, 1000));
  for (auto _ : state) benchmark::DoNotOptimize(network.solve(kMostTicks));
  state.SetItemsProcessed(kArcs * nodes * state.iterations());
}
BENCHMARK(max_flow)->Arg(1000)->Arg(30000)->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace remat
