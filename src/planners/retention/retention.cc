#include "planners/retention/retention.h"

#include <algorithm>
#include <array>
#include <utility>

#include "exact/retention_cut.h"
#include "planning/incumbent.h"
#include "planning/options.h"
#include "polish/polish.h"

namespace remat::retention {
namespace {

constexpr int kMostMoments = 64;
constexpr int kMostWithoutGain = 6;
constexpr std::int64_t kMostTicks = 400'000'000;
constexpr std::int64_t kTicksPerUnit = 50;

/// May the steps of the plan be the ops of a graph, or would their sums leave what a graph may hold?
bool can_unroll(const Graph& graph, const Plan& plan) {
  Wide bytes = graph.resident.count(), duration = 0;
  Bytes workspace;
  for (OpId op : plan.steps) {
    for (ValueId v : graph.outputs[op]) bytes += graph.bytes[v].count();
    duration += graph.duration[op].count();
    workspace = std::max(workspace, graph.workspace[op]);
  }
  return std::max(bytes + workspace.count(), duration) < kMaxCount;
}

/// Every step of the plan as an op of its own, every instance as a value: what a plan runs twice are two ops.
Graph unrolled(const Graph& graph, const Plan& plan) {
  GraphBuilder builder(graph.name, graph.time_unit);
  IndexVector<ValueId, std::int64_t> newest(graph.num_values(), -1);
  for (ValueId v : graph.graph_inputs) {
    newest[v] = builder.add_value(graph.bytes[v]);
    builder.add_input(newest[v]);
  }
  std::vector<std::int64_t> inputs, outputs;
  std::vector<std::array<std::int64_t, 2>> over;
  for (OpId op : plan.steps) {
    inputs.clear();
    outputs.clear();
    over.clear();
    for (const Over& pair : graph.over[op]) over.push_back({newest[pair.input], -1});
    for (ValueId v : graph.inputs[op]) inputs.push_back(newest[v]);
    for (ValueId v : graph.outputs[op]) {
      newest[v] = builder.add_value(graph.bytes[v]);
      outputs.push_back(newest[v]);
    }
    for (std::size_t i = 0; i < over.size(); ++i) over[i][1] = newest[graph.over[op][i].output];
    builder.add_op({.name = {},
                    .duration = graph.duration[op],
                    .workspace = graph.workspace[op],
                    .recomputable = graph.recomputable[op],
                    .inputs = inputs,
                    .outputs = outputs,
                    .over = over});
  }
  for (ValueId v : graph.graph_outputs) builder.add_output(newest[v]);
  return builder.build();
}

/// The plan with the best choice at its dearest step, or the plan itself.
Plan relieved(const Graph& graph, const Plan& plan, StepId dearest, Bytes budget, Limits& limits) {
  if (!can_unroll(graph, plan)) return plan;
  const Graph steps = unrolled(graph, plan);
  const RetentionResult found =
      solve_retention(steps, OpId(dearest.index()), budget, OrderMode::kFixed, kMostTicks, &limits);
  limits.spend(1 + found.ticks / kTicksPerUnit);
  if (!found.choice) return plan;
  Plan next;
  for (OpId step : plan_of(steps, *found.choice).steps)
    next.steps.push_back(plan.steps[StepId(step.index())]);
  return polish::without_unread_steps(graph, next);
}

PlanResult run(const Problem& problem, const PlanOptions& given, Limits& limits) {
  bool buy_back = true;
  OptionReader(given, "retention").flag("buy_back", buy_back).finish();
  const Graph& graph = *problem.graph;
  Incumbent best(problem, "retention", limits);
  best.offer(keep_all_plan(graph));
  std::int64_t moments = 0;
  for (Plan& plan : candidate_plans(graph, problem.budget, limits)) {
    ++moments;
    if (buy_back && !limits.reached()) plan = polish::buy_back(graph, plan, problem.budget, limits);
    best.offer(std::move(plan));
  }
  return best.result({{"moments", moments}});
}

}  // namespace

std::vector<Plan> candidate_plans(const Graph& graph, Bytes budget, Limits& limits) {
  std::vector<Plan> plans;
  Plan plan = keep_all_plan(graph);
  Bytes least;
  int without_gain = 0;
  for (int moment = 0; moment < kMostMoments && !limits.reached(); ++moment) {
    const Simulation cost = simulate(graph, plan);
    if (cost.peak <= budget) break;
    // The next moment may be dearer than the one that was relieved, but not for ever.
    const bool gained = moment == 0 || cost.peak.count() < least.count() - least.count() / 100;
    if (gained) least = cost.peak;
    without_gain = gained ? 0 : without_gain + 1;
    if (without_gain > kMostWithoutGain) break;
    Plan next = relieved(graph, plan, cost.peak_step, budget, limits);
    if (next == plan) break;
    plan = std::move(next);
    plans.push_back(plan);
  }
  return plans;
}

PlannerInfo info() {
  return {
      "retention",
      "what to keep across the moment of the peak and what to run again, by minimum cuts; then the next one",
      "optimal at one moment, up to one step of the hull; may miss its budget",
      "Remat",
      [](const Problem& problem) -> std::optional<std::string> {
        if (problem.objective == Objective::kPeak) return "it needs a budget (objective time)";
        return std::nullopt;
      },
      run};
}

}  // namespace remat::retention
