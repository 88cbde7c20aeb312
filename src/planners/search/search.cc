#include "planners/search/search.h"

#include <algorithm>
#include <memory>

#include "base/numbers.h"
#include "base/threads.h"
#include "planners/retention/retention.h"
#include "planners/search/worker.h"
#include "planners/tw_remat/tw_remat.h"
#include "planning/options.h"

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
      .flag("deep_chain", o.deep_chain)
      .flag("window", o.window)
      .flag("aim", o.aim)
      .flag("trim", o.trim)
      .flag("restart", o.restart)
      .flag("mix", o.mix)
      .flag("adapt", o.adapt)
      .flag("constructive", o.constructive)
      .flag("retention", o.retention)
      .number("hot", o.hot, 1e-6, 1e6)
      .number("cold", o.cold, 1e-9, 1e6)
      .number("coolest", o.coolest, 1e-6, 1)
      .number("reheat", o.reheat, 1e-3, 1e3)
      .integer("cycle", o.cycle, 1, 1'000'000'000)
      .number("growth", o.growth, 1, 100)
      .number("cooling", o.cooling, 1, 1e6)
      .number("lead", o.lead, 0, 1)
      .number("restarts", o.restarts, 0, 1)
      .number("constructive_below", o.constructive_below, 0, 1e6)
      .number("constructive_share", o.constructive_share, 1e-3, 1)
      .number("peak_share", o.peak_share, 1e-3, 1)
      .finish();
  return o;
}

/// Plans that need less memory, by falling peak: a few of TWRemat's.
std::vector<Plan> constructive_plans(const Problem& problem, double part, Limits& limits) {
  Limits share(limits, part);
  std::vector<Plan> plans;
  for (const auto& candidate : tw_remat::candidate_plans(problem, share)) plans.push_back(candidate.plan);
  return plans;
}

/// At larger budgets the search finds plans from keep-all itself, sooner than TWRemat.
bool needs_less(const Problem& problem, double part, Bytes keep_all_peak) {
  const auto less = static_cast<std::int64_t>(part * real(keep_all_peak));
  return problem.objective == Objective::kPeak || problem.budget.count() < less;
}

PlanResult run(const Problem& problem, const PlanOptions& given, Limits& limits) {
  Options options = read_options(given);
  if (problem.objective == Objective::kTime) options.deep_chain = false;
  PlanResult result;
  Starts starts;
  starts.keep_all = keep_all_plan(*problem.graph);
  result.plan = starts.keep_all;
  const Bytes keep_all_peak = simulate(*problem.graph, starts.keep_all).peak;
  const bool keep_all_fits = problem.objective == Objective::kTime && keep_all_peak <= problem.budget;
  if (keep_all_fits || limits.reached()) {
    result.stopped_by = limits.stopped_by().value_or(StoppedBy::kProof);
    return result;
  }
  for (const Plan& start : problem.starts) {
    const bool fits = simulate(*problem.graph, start).peak <= problem.budget;
    (fits ? starts.known : starts.constructive).push_back(start);
  }
  if (options.retention && problem.objective == Objective::kTime) {
    for (Plan& plan : retention::candidate_plans(*problem.graph, problem.budget, limits))
      starts.constructive.push_back(std::move(plan));
  }
  if (options.constructive && needs_less(problem, options.constructive_below, keep_all_peak)) {
    for (Plan& plan : constructive_plans(problem, options.constructive_share, limits))
      starts.constructive.push_back(std::move(plan));
  }

  const TrackerGraph compact(*problem.graph);
  Pool pool(problem, compact, limits);
  std::vector<std::unique_ptr<Worker>> workers;
  for (int i = 0; i < std::max(1, given.threads); ++i) {
    const std::uint64_t seed = given.seed + 0x9e3779b97f4a7c15ULL * static_cast<std::uint64_t>(i);
    workers.push_back(std::make_unique<Worker>(problem, compact, options, starts, pool, seed));
  }
  run_threads(workers.size(), [&](std::size_t i) { workers[i]->run(limits); });

  if (const auto found = pool.any()) result.plan = found->plan;
  result.stopped_by = limits.stopped_by().value_or(StoppedBy::kProof);
  for (const auto& worker : workers) worker->annealer().add_statistics(result.counters);
  return result;
}

}  // namespace

PlannerInfo info() {
  return {"search",
          "anytime search over the step sequence with an exact incremental tracker",
          "valid plans; within the budget wherever one was found; better with more time",
          "Remat",
          [](const Problem&) -> std::optional<std::string> { return std::nullopt; },
          run,
          true};
}

std::map<std::string, std::string> only_first_runs() {
  std::map<std::string, std::string> set;
  for (const char* name :
       {"insert_chain", "erase", "shift", "insert_erase", "erase_insert", "retention", "constructive"})
    set[name] = "off";
  return set;
}

}  // namespace remat::search
