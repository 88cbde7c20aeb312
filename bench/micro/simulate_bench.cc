// The reference simulator and the validator on plans with recomputations.
#include <benchmark/benchmark.h>

#include "remat/plan.h"
#include "subjects.h"

namespace remat {
namespace {

void simulate_training(benchmark::State& state) {
  const Graph graph = bench::gpt(state.range(0));
  const Plan plan = bench::tight_plan(graph);
  for (auto _ : state) benchmark::DoNotOptimize(simulate(graph, plan).peak);
  state.SetItemsProcessed(static_cast<std::int64_t>(plan.steps.size()) * state.iterations());
}
BENCHMARK(simulate_training)->Arg(12)->Arg(200)->Unit(benchmark::kMicrosecond);

void memory_of_each_step(benchmark::State& state) {
  const Graph graph = bench::gpt(state.range(0));
  const Plan plan = bench::tight_plan(graph);
  IndexVector<StepId, Bytes> memory;
  for (auto _ : state) benchmark::DoNotOptimize(simulate(graph, plan, memory).peak);
  state.SetItemsProcessed(static_cast<std::int64_t>(plan.steps.size()) * state.iterations());
}
BENCHMARK(memory_of_each_step)->Arg(12)->Arg(200)->Unit(benchmark::kMicrosecond);

void validate_training(benchmark::State& state) {
  const Graph graph = bench::gpt(state.range(0));
  const Plan plan = bench::tight_plan(graph);
  for (auto _ : state) {
    if (validate(graph, plan, OrderMode::kFixed)) state.SkipWithError("the plan must be valid");
  }
  state.SetItemsProcessed(static_cast<std::int64_t>(plan.steps.size()) * state.iterations());
}
BENCHMARK(validate_training)->Arg(12)->Arg(200)->Unit(benchmark::kMicrosecond);

}  // namespace
}  // namespace remat
