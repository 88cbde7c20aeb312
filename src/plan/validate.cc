#include <array>

#include "base/numbers.h"
#include "remat/plan.h"

namespace remat {

std::string_view to_string(Rule rule) {
  static constexpr std::array<std::string_view, 8> kNames{
      "op_exists", "input_ready", "after", "runs_once", "every_op_runs", "fixed_order", "duration", "budget"};
  return kNames[at(rule)];
}

namespace {

Violation broken(Rule rule, StepId step, const std::string& what) {
  std::string message = "rule " + std::string(to_string(rule)) + ": ";
  if (step) message += "step " + std::to_string(step.index()) + ": ";
  return {rule, step, message + what};
}

std::optional<Violation> check_exists(const Graph& graph, std::int64_t op, std::size_t step) {
  if (op >= 0 && op < std::ssize(graph.duration)) return std::nullopt;
  return broken(
      Rule::kOpExists, StepId(static_cast<std::int64_t>(step)),
      "op index " + std::to_string(op) + " is not one of the " + std::to_string(graph.num_ops()) + " ops");
}

/// The first step that breaks a rule about the past of its op.
std::optional<Violation> check_steps(const Graph& graph, const Plan& plan,
                                     IndexVector<OpId, StepId>& first_run) {
  for (StepId step : plan.steps.ids()) {
    const OpId op = plan.steps[step];
    if (auto violation = check_exists(graph, op.index(), narrow<std::size_t>(step.index()))) return violation;
    for (ValueId v : graph.inputs[op]) {
      if (!graph.is_graph_input(v) && !first_run[graph.producer[v]]) {
        return broken(Rule::kInputReady, step,
                      describe(graph, op) + " reads " + describe(graph, v) + ", but its producer " +
                          describe(graph, graph.producer[v]) + " has not run");
      }
    }
    for (OpId before : graph.after[op]) {
      if (!first_run[before]) {
        return broken(Rule::kAfter, step, describe(graph, op) + " runs before " + describe(graph, before));
      }
    }
    if (!first_run[op]) {
      first_run[op] = step;
    } else if (!graph.recomputable[op]) {
      return broken(Rule::kRunsOnce, step,
                    describe(graph, op) + " forbids recomputation and has run at step " +
                        std::to_string(first_run[op].index()));
    }
  }
  return std::nullopt;
}

}  // namespace

std::optional<Violation> validate(const Graph& graph, const Plan& plan, OrderMode order,
                                  std::optional<Bytes> budget) {
  IndexVector<OpId, StepId> first_run(graph.num_ops());
  if (auto violation = check_steps(graph, plan, first_run)) return violation;
  for (OpId op : graph.ops()) {
    if (!first_run[op])
      return broken(Rule::kEveryOpRuns, StepId::none(), describe(graph, op) + " never runs");
    if (order == OrderMode::kFixed && op.index() > 0 && first_run[op] < first_run[op.prev()]) {
      return broken(Rule::kFixedOrder, first_run[op],
                    describe(graph, op) + " first runs before " + describe(graph, op.prev()) +
                        ", which first runs at step " + std::to_string(first_run[op.prev()].index()));
    }
  }
  constexpr Wide kLimit = Wide{1} << 63;
  if (const Wide duration = total_duration(graph, plan); duration >= kLimit) {
    return broken(
        Rule::kDuration, StepId::none(),
        "the steps take " + to_string(duration) + " together, which is not below " + to_string(kLimit));
  }
  if (budget) {
    const Simulation cost = simulate(graph, plan);
    if (cost.peak > *budget) {
      return broken(Rule::kBudget, cost.peak_step,
                    "memory " + std::to_string(cost.peak.count()) + " is over the budget " +
                        std::to_string(budget->count()));
    }
  }
  return std::nullopt;
}

std::optional<Violation> validate(const Graph& graph, std::span<const std::int64_t> steps, OrderMode order,
                                  std::optional<Bytes> budget) {
  Plan plan;
  plan.steps.reserve(steps.size());
  for (std::int64_t index : steps) {
    if (auto violation = check_exists(graph, index, plan.steps.size())) return violation;
    plan.steps.push_back(OpId(index));
  }
  return validate(graph, plan, order, budget);
}

}  // namespace remat
