// Loading, writing, simulating and validating, on a training-like graph of any size.
#include <benchmark/benchmark.h>

#include <string>

#include "remat/io.h"
#include "remat/random.h"

namespace remat {
namespace {

/// Each op reads two of the last 20 values or of 100 graph inputs; names as long as PyTorch's.
Graph layered(std::int64_t num_ops) {
  constexpr std::int64_t kInputs = 100;
  constexpr std::string_view kKinds[] = {"aten.mm.default", "aten.add.Tensor",
                                         "aten.native_layer_norm.default",
                                         "aten.convolution_backward.default"};
  Random random(1);
  GraphBuilder builder("layered", "ns");
  for (std::int64_t v = 0; v < kInputs; ++v)
    builder.add_input(builder.add_value(Bytes(random.below(1 << 20))));
  for (std::int64_t i = 0; i < num_ops; ++i) {
    const std::int64_t out[] = {builder.add_value(Bytes(random.below(1 << 20)))};
    const std::int64_t in[] = {random.between(std::max<std::int64_t>(0, i - 20), i + kInputs - 1),
                               random.between(std::max<std::int64_t>(0, i - 20), i + kInputs - 1)};
    const std::string module = "model.layers." + std::to_string(i / 30) + ".attention";
    builder.add_op({.name = module + ".op_" + std::to_string(i),
                    .kind = kKinds[random.below(4)],
                    .module = module,
                    .duration = Duration(random.below(1000000)),
                    .workspace = Bytes(random.below(1 << 20)),
                    .phase = Phase::kForward,
                    .inputs = in,
                    .outputs = out});
  }
  builder.add_output(num_ops + kInputs - 1);
  return builder.build();
}

/// The keep-all plan with a recomputation of an op whose inputs exist after every step.
Plan doubled(const Graph& graph) {
  Random random(2);
  Plan plan;
  for (OpId op : graph.ops()) {
    plan.steps.push_back(op);
    plan.steps.push_back(OpId(random.below(op.index() + 1)));
  }
  return plan;
}

void load(benchmark::State& state) {
  const std::string text = format_graph(layered(state.range(0)));
  for (auto _ : state) benchmark::DoNotOptimize(parse_graph(text, "bench").graph.num_ops());
  state.SetBytesProcessed(static_cast<std::int64_t>(text.size()) * state.iterations());
}
BENCHMARK(load)->Arg(1000)->Arg(430000)->Unit(benchmark::kMillisecond);

void write(benchmark::State& state) {
  const Graph graph = layered(state.range(0));
  for (auto _ : state) benchmark::DoNotOptimize(format_graph(graph).size());
}
BENCHMARK(write)->Arg(430000)->Unit(benchmark::kMillisecond);

void simulate_steps(benchmark::State& state) {
  const Graph graph = layered(state.range(0) / 2);
  const Plan plan = doubled(graph);
  for (auto _ : state) benchmark::DoNotOptimize(simulate(graph, plan).peak);
  state.SetItemsProcessed(static_cast<std::int64_t>(plan.steps.size()) * state.iterations());
}
BENCHMARK(simulate_steps)->Arg(1000)->Arg(1000000)->Unit(benchmark::kMillisecond);

void validate_steps(benchmark::State& state) {
  const Graph graph = layered(state.range(0) / 2);
  const Plan plan = doubled(graph);
  for (auto _ : state) {
    if (validate(graph, plan, OrderMode::kFixed)) state.SkipWithError("the plan must be valid");
  }
  state.SetItemsProcessed(static_cast<std::int64_t>(plan.steps.size()) * state.iterations());
}
BENCHMARK(validate_steps)->Arg(1000000)->Unit(benchmark::kMillisecond);

void hash(benchmark::State& state) {
  const Graph graph = layered(state.range(0));
  for (auto _ : state) benchmark::DoNotOptimize(graph_hash(graph));
}
BENCHMARK(hash)->Arg(430000)->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace remat
