// Each move of the search: drawn, trimmed, evaluated and taken back, from a plan at three quarters of the
// keep-all peak.
#include <benchmark/benchmark.h>

#include <string>

#include "planners/search/moves.h"
#include "subjects.h"

namespace remat::search {
namespace {

struct Subject {
  Subject(OrderMode order, std::int64_t depth)
      : graph(bench::gpt(depth)), compact(graph), state(compact, order, 1) {
    state.tracker.reset(bench::tight_plan(graph), bench::percent(graph, 73));
    // Some recomputations' worth: moves that give up early by their duration do so here too.
    state.threshold = static_cast<double>(graph.base_duration.count()) / 100;
    state.price = 1e-6;
    for (OpId op : compact.duration.ids()) {
      for (BundleId b : compact.inputs[op]) {
        if (compact.recomputable(compact.producer[b])) state.uses.push_back({op, b});
      }
    }
  }
  Graph graph;
  StepModel compact;
  State state;
};

void run(benchmark::State& bench, OrderMode order, std::size_t which, std::int64_t depth) {
  Subject subject(order, depth);
  auto moves = make_moves({}, order);
  Move& move = *moves[which];
  std::int64_t proposed = 0;
  for (auto _ : bench) {
    if (move.propose(subject.state)) {
      ++proposed;
      subject.state.tracker.trim();
      benchmark::DoNotOptimize(subject.state.pending_cost());
    }
    subject.state.tracker.rollback();
  }
  bench.SetItemsProcessed(bench.iterations());
  bench.counters["proposed"] =
      benchmark::Counter(static_cast<double>(proposed), benchmark::Counter::kAvgIterations);
}

[[maybe_unused]] const bool registered = [] {
  for (const OrderMode order : {OrderMode::kFixed, OrderMode::kFree}) {
    const auto moves = make_moves({}, order);
    for (std::size_t i = 0; i < moves.size(); ++i) {
      for (const std::int64_t depth : {12, 200}) {
        const std::string name = "move/" + std::string(moves[i]->name()) + "/" +
                                 std::string(to_string(order)) + "/" + std::to_string(depth);
        benchmark::RegisterBenchmark(name.c_str(), run, order, i, depth);
      }
    }
  }
  return true;
}();

}  // namespace
}  // namespace remat::search
