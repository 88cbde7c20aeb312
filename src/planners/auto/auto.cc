// What people should call: cheap planners first, then search from their plans, and proofs within reach.
#include <string>
#include <utility>
#include <vector>

#include "planners/auto/schedule.h"
#include "planners/offload/offload.h"
#include "planning/options.h"
#include "remat/planner.h"

namespace remat::automatic {
namespace {

/// Joint plans first, then the best plan without copies, as if there were no host; the better one.
PlanResult run_with_host(const Problem& problem, const Options& own, const PlanOptions& options,
                         Limits& limits) {
  constexpr double kJoint = 0.9;
  const bool joint = problem.objective == Objective::kTime && problem.order == OrderMode::kFixed;
  PlanResult best;
  std::vector<LogEntry> log;
  if (joint) {
    Limits part(limits, kJoint);
    best = make_plan_with(
        problem, "offload",
        [&](const Problem& bounded, Limits& inner) {
          return offload::plan_with_host(bounded, options, inner);
        },
        part);
    LogEntry& entry = log.emplace_back();
    entry.seconds = limits.outermost().seconds();
    entry.work = part.work();
    entry.arm = "offload";
    if (best.plan) entry.after = LoggedPlan{best.cost.duration, best.cost.peak, has_plan(best)};
    entry.bound = best.duration_bound.duration;
    best.log = log;
    if (best.status == Status::kOptimal || best.status == Status::kInfeasible) return best;
  }
  Problem plain = problem;
  plain.host.reset();
  plain.peak_bound = nullptr;
  plain.duration_bound = nullptr;
  PlanResult without = make_plan_with(
      plain, "auto",
      [&](const Problem& bounded, Limits& inner) { return run_schedule(bounded, own, options, inner); },
      limits);
  log.insert(log.end(), without.log.begin(), without.log.end());
  PlanResult& found = better(problem, without, best) ? without : best;
  found.log = std::move(log);
  return std::move(found);
}

PlanResult run(const Problem& problem, const Options& own, const PlanOptions& options, Limits& limits) {
  if (problem.host) return run_with_host(problem, own, options, limits);
  return run_schedule(problem, own, options, limits);
}

}  // namespace

PlannerInfo info() {
  constexpr double kLeast = 1e-3;
  const std::string share = "share of what is left";
  const auto table =
      OptionTable<Options>("auto")
          .number("turn", &Options::turn, kLeast, 0.5, share,
                  "search, lns, a restart, evict, the bound; twice as much for each other first plan")
          .number("order", &Options::order, kLeast, 1, share,
                  "free order: search for an order that needs less memory by itself")
          .number("round_seconds", &Options::round_seconds, 1e-3, 1e9, "seconds",
                  "least length of the first round, or ten million units of work for each second")
          .integer("proof_ops", &Options::proof_ops, 0, 1'000'000, "ops",
                   "up to this size the bound comes before the first search, however little time there is")
          .integer("large_ops", &Options::large_ops, 0, std::int64_t{1} << 31, "ops",
                   "from this size on there is one round, and search makes no start plans of its own")
          .integer("lns_ops", &Options::lns_ops, 0, std::int64_t{1} << 31, "ops",
                   "lns does not run on larger graphs: a single try takes too long")
          .number(
              "bound_gap", &Options::bound_gap, 0, 1e9, "share of the bound",
              "where the plan is further from the bound, the bound of graphs above `proof_ops` is left out")
          .number("bound_seconds_per_op", &Options::bound_seconds_per_op, 0, 1, "seconds per op",
                  "with less time for it the bound of graphs above `proof_ops` is left out")
          .number("search_seconds_per_op", &Options::search_seconds_per_op, 0, 1, "seconds per op",
                  "large graphs with a plan: no search where less time is left");
  return with_options(
      {.name = "auto",
       .description =
           "cheap planners first, then search from their plans, and proofs where they are within reach",
       .guarantee = "a valid plan; optimal or infeasible only where proved",
       .source = "Remat",
       .improves_starts = true},
      table, run);
}

}  // namespace remat::automatic
