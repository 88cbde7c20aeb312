#include <memory>
#include <vector>

#include "c/common.h"
#include "remat/planner.h"
#include "remat/sweep.h"

struct remat_plans {
  struct One {
    remat_plan_info info{};
    remat::PlanResult result;
    std::vector<std::int64_t> steps;
  };
  std::vector<One> all;
};

namespace remat::c {
namespace {

PlanOptions planner_options(const remat_plan_options& given) {
  PlanOptions options;
  options.seed = given.seed;
  options.threads = std::max(1, within(given.threads, 0, 1024, "threads"));
  array(given.options, given.num_options, "options", "num_options");
  for (std::int64_t i = 0; i < given.num_options; ++i) {
    const remat_option& option = given.options[i];
    require(option.name, (at_index("options", i) + ".name").c_str());
    require(option.value, (at_index("options", i) + ".value").c_str());
    if (!options.set.emplace(option.name, option.value).second) {
      throw UsageError(at_index("options", i) + ": '" + option.name + "' is given twice");
    }
  }
  return options;
}

OrderMode order_of(const remat_plan_options& options) {
  return within<std::int32_t>(options.order, REMAT_FIXED_ORDER, REMAT_FREE_ORDER, "order") == REMAT_FREE_ORDER
             ? OrderMode::kFree
             : OrderMode::kFixed;
}

void set_gap(const remat_plan_options& options, Limits& limits) {
  if (!(options.gap_limit >= 0)) {
    throw UsageError("gap_limit is " + std::to_string(options.gap_limit) + ", not 0 or more");
  }
  if (options.gap_limit > 0) limits.set_gap(options.gap_limit);
}

std::string planner_of(const remat_plan_options& options) {
  return options.planner ? options.planner : "auto";
}

/// All fields except those of the whole handle.
remat_plans::One one_plan(const Graph& graph, PlanResult made, std::int64_t budget) {
  remat_plans::One one;
  one.result = std::move(made);
  const PlanResult& result = one.result;
  const bool fits = has_plan(result);
  one.info.status = static_cast<std::int32_t>(result.status);
  one.info.stopped_by = static_cast<std::int32_t>(result.stopped_by);
  one.info.budget = budget;
  if (fits) {
    for (const OpId op : result.plan->steps) one.steps.push_back(op.index());
  }
  one.info.peak = result.plan ? result.cost.peak.count() : -1;
  one.info.duration = fits ? result.cost.duration.count() : -1;
  one.info.overhead = fits ? overhead(graph, result.cost.duration) : -1;
  one.info.gap = fits ? gap(result) : -1;
  one.info.peak_bound = result.peak_bound.peak.count();
  one.info.duration_bound = result.duration_bound.duration.count();
  one.info.seconds = result.seconds;
  return one;
}

/// Pointers into the elements, which stay where they are from now on.
void point_into(remat_plans& plans) {
  for (remat_plans::One& one : plans.all) {
    one.info.count = std::ssize(plans.all);
    one.info.num_steps = std::ssize(one.steps);
    one.info.steps = one.steps.empty() ? nullptr : one.steps.data();
    one.info.peak_argument = one.result.peak_bound.argument.c_str();
    one.info.duration_argument = one.result.duration_bound.argument.c_str();
    one.info.planner = one.result.planner.c_str();
  }
}

remat_plans* make_plans(const Graph& graph, const remat_plan_options& options) {
  Problem problem{.graph = &graph, .order = order_of(options)};
  if (options.points != 0)
    throw UsageError("points are those of a sweep, and remat_make_plan makes one plan");
  const bool by_peak = within<std::int32_t>(options.objective, REMAT_LEAST_TIME, REMAT_LEAST_PEAK,
                                            "objective") == REMAT_LEAST_PEAK;
  problem.objective = by_peak ? Objective::kPeak : Objective::kTime;
  if (options.budget != 0 || !by_peak) {
    problem.budget = Bytes(within<std::int64_t>(options.budget, 1, kMaxCount - 1, "budget"));
  }
  Effort effort(options);
  set_gap(options, effort.limits());
  auto plans = std::make_unique<remat_plans>();
  plans->all.push_back(
      one_plan(graph, make_plan(problem, planner_of(options), planner_options(options), effort.limits()),
               options.budget));
  point_into(*plans);
  return plans.release();
}

remat_plans* make_points(const Graph& graph, const remat_plan_options& options) {
  SweepOptions sweep_options;
  sweep_options.planner = planner_of(options);
  sweep_options.order = order_of(options);
  if (options.points != 0) sweep_options.points = options.points;
  sweep_options.plan = planner_options(options);
  if (options.budget != 0) {
    throw UsageError("budget is " + std::to_string(options.budget) + ", and a sweep chooses its own");
  }
  if (options.objective != REMAT_LEAST_TIME)
    throw UsageError("a sweep has the objective REMAT_LEAST_TIME only");
  Effort effort(options);
  set_gap(options, effort.limits());
  PlanStore store;
  SweepResult swept = sweep(graph, sweep_options, effort.limits(), store);
  auto plans = std::make_unique<remat_plans>();
  for (SweepPoint& point : swept.points) {
    plans->all.push_back(one_plan(graph, std::move(point.result), point.budget.count()));
    plans->all.back().info.knee = point.knee;
    plans->all.back().info.seconds = swept.seconds;
  }
  point_into(*plans);
  return plans.release();
}

static_assert(static_cast<int>(Status::kUnknown) == REMAT_UNKNOWN);
static_assert(static_cast<int>(StoppedBy::kInterrupted) == REMAT_BY_CANCEL);
static_assert(static_cast<int>(StoppedBy::kGap) == REMAT_BY_GAP);

}  // namespace
}  // namespace remat::c

using remat::c::guarded;
using remat::c::require;

int remat_make_plan(const remat_graph* graph, const remat_plan_options* options, remat_plans** plans) {
  return guarded([&] {
    require(graph, "graph");
    require(plans, "plans");
    *plans = remat::c::make_plans(graph->graph, remat::c::read_struct(options, "remat_plan_options"));
  });
}

int remat_make_sweep(const remat_graph* graph, const remat_plan_options* options, remat_plans** plans) {
  return guarded([&] {
    require(graph, "graph");
    require(plans, "plans");
    *plans = remat::c::make_points(graph->graph, remat::c::read_struct(options, "remat_plan_options"));
  });
}

int remat_get_plan(const remat_plans* plans, int64_t index, remat_plan_info* info) {
  return guarded([&] {
    require(plans, "plans");
    remat::c::within<std::int64_t>(index, 0, std::ssize(plans->all) - 1, "index");
    remat::c::write_struct(plans->all[static_cast<std::size_t>(index)].info, info, "remat_plan_info");
  });
}

void remat_free_plans(remat_plans* plans) { delete plans; }
