// Dynamic tensor rematerialization (Kirisame et al. 2021), simulated along the graph's order: the online
// baseline, without lookahead.
#include "base/numbers.h"
#include "planners/evict/engine.h"
#include "planning/options.h"
#include "polish/polish.h"
#include "remat/planner.h"

namespace remat::dtr {
namespace {

using evict::Policy;

/// The heuristics of the paper's section 4.1, by their names there.
Policy policy_of(const std::string& heuristic) {
  Policy policy;
  policy.age = Policy::Age::kElapsed;
  policy.demand = Policy::Demand::kOldestFirst;
  policy.eager = true;
  policy.cost = Policy::Cost::kNeighborhood;
  if (heuristic == "local") policy.cost = Policy::Cost::kOwn;
  if (heuristic == "msps") {
    policy.cost = Policy::Cost::kClosure;
    policy.age_power = Policy::Power::kZero;
  }
  if (heuristic == "lru" || heuristic == "size") {
    policy.cost = Policy::Cost::kOwn;
    policy.cost_power = Policy::Power::kZero;
    (heuristic == "lru" ? policy.bytes_power : policy.age_power) = Policy::Power::kZero;
  }
  return policy;
}

struct Options {
  std::string heuristic = "dtr";
};

PlanResult run(const Problem& problem, const Options& options, const PlanOptions&, Limits& limits) {
  constexpr std::int64_t kMaxStepsPerOp = 64;
  const Graph& graph = *problem.graph;
  const Bytes budget = problem.objective == Objective::kPeak ? floor_bound(graph).peak : problem.budget;
  evict::Outcome outcome =
      evict::run(graph, budget, policy_of(options.heuristic), kMaxStepsPerOp * graph.ops().size(), limits);
  PlanResult result;
  // A run that thrashes or reaches the limits has no complete plan; keep-all stands in for it.
  result.plan = outcome.complete ? polish::without_unread_steps(graph, outcome.plan) : keep_all_plan(graph);
  result.counters = {{"evictions", outcome.evictions}, {"thrashed", !outcome.complete}};
  if (const auto reason = limits.stopped_by()) result.stopped_by = *reason;
  return result;
}

}  // namespace

PlannerInfo info() {
  const auto table = OptionTable<Options>("dtr").choice(
      "heuristic", &Options::heuristic, {"dtr", "local", "msps", "lru", "size"},
      "score by which values are evicted, by its name in the paper");
  return with_options(
      {"dtr", "runs the order online and evicts by cost over bytes and staleness when memory is short",
       "none; may miss its budget (the baseline that does not look ahead)", "Kirisame et al. 2021 (DTR)"},
      table, run);
}

}  // namespace remat::dtr
