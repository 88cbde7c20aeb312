#include "planners/search/search.h"

#include <algorithm>

#include "planners/options.h"
#include "planners/search/annealer.h"

namespace remat::search {
namespace {

Options read_options(const PlanOptions& given) {
  Options o;
  OptionReader reader(given, "search");
  reader.flag("insert_chain", o.insert_chain)
      .flag("erase", o.erase)
      .flag("shift", o.shift)
      .flag("insert_erase", o.insert_erase)
      .flag("erase_insert", o.erase_insert)
      .flag("window", o.window)
      .flag("trim", o.trim)
      .flag("restart", o.restart)
      .flag("adapt", o.adapt)
      .flag("constructive", o.constructive)
      .flag("tighten", o.tighten)
      .number("hot", o.hot, 1e-6, 1e6)
      .number("cold", o.cold, 1e-9, 1e6)
      .integer("cycle", o.cycle, 1, 1'000'000'000)
      .number("growth", o.growth, 1, 100)
      .finish();
  return o;
}

PlanResult run(const Problem& problem, const PlanOptions& given, Limits& limits) {
  const Options options = read_options(given);
  const Graph& graph = *problem.graph;
  const TrackerGraph compact(graph);
  Annealer annealer(compact, problem.order, options, given.seed);
  annealer.set_budget(problem.budget);
  const Plan keep_all = keep_all_plan(graph);
  annealer.begin(keep_all);
  double moves = static_cast<double>(options.cycle) * static_cast<double>(graph.num_ops());
  Random random(given.seed + 1);
  for (int cycle = 0; !limits.reached(); ++cycle) {
    if (annealer.best() && annealer.best()->duration == graph.base_duration.count()) break;
    const bool fresh = options.restart && random.chance(0.5);
    if (cycle > 0) {
      const auto& from = annealer.best() ? annealer.best() : annealer.closest();
      annealer.begin(fresh || !from ? keep_all : Plan(from->plan));
    }
    annealer.cycle(static_cast<std::int64_t>(moves), options.hot, options.cold, limits);
    moves *= options.growth;
  }
  PlanResult result;
  const auto& found = annealer.best() ? annealer.best() : annealer.closest();
  if (found) result.plan = found->plan;
  result.stopped_by = limits.stopped_by().value_or(StoppedBy::kProof);
  annealer.add_statistics(result.counters);
  return result;
}

}  // namespace

PlannerInfo info() {
  return {"search",
          "anytime search over the step sequence with an exact incremental tracker",
          "valid plans; within the budget wherever one was found; better with more time",
          "Remat",
          [](const Problem&) -> std::optional<std::string> { return std::nullopt; },
          run};
}

}  // namespace remat::search
