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

/// A few of TWRemat's plans of low memory, by falling peak.
std::vector<Plan> constructive_plans(const Problem& problem, double part, Limits& limits) {
  Limits share(limits, part);
  std::vector<Plan> plans;
  for (const auto& candidate : tw_remat::candidate_plans(problem, share)) plans.push_back(candidate.plan);
  return plans;
}

/// At larger budgets the search from keep-all is faster than TWRemat.
bool needs_less(const Problem& problem, double part, Bytes keep_all_peak) {
  const auto less = static_cast<std::int64_t>(part * real(keep_all_peak));
  return problem.objective == Objective::kPeak || problem.budget.count() < less;
}

PlanResult run(const Problem& problem, Options options, const PlanOptions& given, Limits& limits) {
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

  const StepModel compact(*problem.graph);
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
  const auto table =
      OptionTable<Options>("search")
          .flag("insert_chain", &Options::insert_chain,
                "insert a recomputation together with its dead predecessors")
          .flag("erase", &Options::erase, "erase a recomputation")
          .flag("shift", &Options::shift, "move a recomputation to another place")
          .flag("insert_erase", &Options::insert_erase,
                "insert a recomputation, then erase the best of several others")
          .flag("erase_insert", &Options::erase_insert,
                "erase a recomputation, then insert the best of several others")
          .flag("deep_chain", &Options::deep_chain,
                "objective peak: drop across a dear step, however much it takes to make again")
          .flag("window", &Options::window, "free order: reorder steps inside a window")
          .flag("aim", &Options::aim, "insertions look for gaps around steps where memory is short")
          .flag("trim", &Options::trim, "after every move, drop steps whose results nobody reads")
          .flag("restart", &Options::restart, "some cycles begin from a start plan, not from the best plan")
          .flag("mix", &Options::mix, "cycles differ in the temperature at which they begin")
          .flag("adapt", &Options::adapt, "the price of bytes over the budget follows how often plans fit")
          .flag("constructive", &Options::constructive,
                "begin from plans of tw_remat too, at budgets below `constructive_below`")
          .flag("retention", &Options::retention, "begin from plans of retention too")
          .number("hot", &Options::hot, 1e-6, 1e6, "mean recomputations",
                  "temperature at the start of a cycle")
          .number("cold", &Options::cold, 1e-9, 1e6, "mean recomputations",
                  "temperature at the end of a cycle")
          .number("coolest", &Options::coolest, 1e-6, 1, "factor",
                  "free order: lowest factor on both temperatures, where few ops run again")
          .number("reheat", &Options::reheat, 1e-3, 1e3, "share of `hot`",
                  "temperature at which cycles from the best plan begin")
          .integer("cycle", &Options::cycle, 1, 1'000'000'000, "moves per op", "length of the first cycle")
          .number("growth", &Options::growth, 1, 100, "factor", "each cycle is longer than the last by this")
          .number("cooling", &Options::cooling, 1, 1e6, "factor",
                  "the temperature falls by at least this in a cycle")
          .number("lead", &Options::lead, 0, 1, "share of cycles", "cycles of the line with the best plan")
          .number("restarts", &Options::restarts, 0, 1, "share of cycles",
                  "cycles that begin from a start plan; half of it in free order")
          .number("constructive_below", &Options::constructive_below, 0, 1e6, "share of the keep-all peak",
                  "budgets below this begin from plans of tw_remat too")
          .number("constructive_share", &Options::constructive_share, 1e-3, 1, "share of the limits",
                  "for these plans")
          .number("peak_share", &Options::peak_share, 1e-3, 1, "share of the limits",
                  "objective peak: for lowering it; the rest makes that plan faster");
  return with_options(
      {.name = "search",
       .description = "anytime search over the step sequence with an exact incremental tracker",
       .guarantee = "valid plans; within the budget wherever one was found; better with more time",
       .source = "Remat",
       .improves_starts = true},
      table, run);
}

std::map<std::string, std::string> only_first_runs() {
  std::map<std::string, std::string> set;
  for (const char* name :
       {"insert_chain", "erase", "shift", "insert_erase", "erase_insert", "retention", "constructive"})
    set[name] = "off";
  return set;
}

}  // namespace remat::search
