// The incremental tracker: edits, their evaluation, and taking them back.
#include <benchmark/benchmark.h>

#include "plan/tracker.h"
#include "remat/random.h"
#include "subjects.h"

namespace remat {
namespace {

struct Subject {
  explicit Subject(std::int64_t depth)
      : graph(bench::gpt(depth)), compact(graph), tracker(compact, OrderMode::kFixed) {
    tracker.reset(bench::tight_plan(graph), bench::percent(graph, 75));
  }
  /// A step that may run once more just before a random later step: (op, before).
  std::pair<OpId, OccId> draw(Random& random) {
    for (;;) {
      const OpId op(random.below(static_cast<std::int64_t>(graph.num_ops())));
      OccId before = tracker.last(OpId(random.below(static_cast<std::int64_t>(graph.num_ops()))));
      const bool has_run = tracker.key(tracker.first(op)) < tracker.key(before);
      if (graph.recomputable[op] && has_run) return {op, before};
    }
  }

  Graph graph;
  StepModel compact;
  Tracker tracker;
};

void reset_tracker(benchmark::State& state) {
  Subject subject(state.range(0));
  const Plan plan = subject.tracker.plan();
  for (auto _ : state) subject.tracker.reset(plan, bench::percent(subject.graph, 75));
  state.SetItemsProcessed(subject.tracker.steps() * state.iterations());
}
BENCHMARK(reset_tracker)->Arg(12)->Arg(200)->Unit(benchmark::kMicrosecond);

/// One recomputation inserted, evaluated and taken back: what a move that is refused costs at least.
void insert_and_take_back(benchmark::State& state) {
  Subject subject(state.range(0));
  Random random(1);
  for (auto _ : state) {
    const auto [op, before] = subject.draw(random);
    subject.tracker.insert(op, before);
    benchmark::DoNotOptimize(subject.tracker.change());
    subject.tracker.rollback();
  }
  state.SetItemsProcessed(state.iterations());
}
BENCHMARK(insert_and_take_back)->Arg(12)->Arg(200);

/// A recomputation erased and taken back.
void erase_and_take_back(benchmark::State& state) {
  Subject subject(state.range(0));
  Random random(1);
  for (auto _ : state) {
    const auto& all = subject.tracker.recomputations();
    const OccId occ = all[static_cast<std::size_t>(random.below(std::ssize(all)))];
    if (!subject.tracker.erasable(occ)) continue;
    subject.tracker.erase(occ);
    benchmark::DoNotOptimize(subject.tracker.change());
    subject.tracker.rollback();
  }
  state.SetItemsProcessed(state.iterations());
}
BENCHMARK(erase_and_take_back)->Arg(12)->Arg(200);

/// A recomputation inserted for good and erased for good.
void insert_and_erase_committed(benchmark::State& state) {
  Subject subject(state.range(0));
  Random random(1);
  for (auto _ : state) {
    const auto [op, before] = subject.draw(random);
    const OccId occ = subject.tracker.insert(op, before);
    subject.tracker.change();
    subject.tracker.commit();
    subject.tracker.erase(occ);
    subject.tracker.change();
    subject.tracker.commit();
  }
  state.SetItemsProcessed(state.iterations());
}
BENCHMARK(insert_and_erase_committed)->Arg(12)->Arg(200);

void copy_plan(benchmark::State& state) {
  const Subject subject(state.range(0));
  for (auto _ : state) benchmark::DoNotOptimize(subject.tracker.plan().steps.size());
  state.SetItemsProcessed(subject.tracker.steps() * state.iterations());
}
BENCHMARK(copy_plan)->Arg(12)->Arg(200)->Unit(benchmark::kMicrosecond);

}  // namespace
}  // namespace remat
