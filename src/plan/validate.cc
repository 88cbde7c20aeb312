#include <array>

#include "base/numbers.h"
#include "plan/copies.h"
#include "remat/plan.h"

namespace remat {

std::string_view to_string(Rule rule) {
  static constexpr std::array<std::string_view, 18> kNames{
      "op_exists",  "input_ready", "after",          "runs_once", "every_op_runs", "fixed_order",
      "copy_value", "copy_steps",  "copy_order",     "copy_once", "copy_back",     "copy_source",
      "on_device",  "waited_for",  "kept_on_device", "duration",  "budget",        "host_budget"};
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

std::string describe(const Graph& graph, const Copy& copy) {
  return "the copy " + std::string(to_string(copy.way)) + " of " + describe(graph, copy.value);
}

/// The first copy that breaks a rule about copies alone.
std::optional<Violation> check_copies(const Graph& graph, const Plan& plan) {
  const auto text = [](StepId step) { return std::to_string(step.index()); };
  const StepId end(std::ssize(plan.steps));
  std::array<StepId, 2> last_issue{StepId(0), StepId(0)};
  IndexVector<ValueId, StepId> out_wait(graph.num_values());
  for (const Copy& copy : plan.copies) {
    if (copy.value.is_none() || copy.value >= ValueId(std::ssize(graph.bytes))) {
      return broken(Rule::kCopyValue, StepId::none(),
                    "value " + std::to_string(copy.value.index()) + " is copied and not one of the " +
                        std::to_string(graph.num_values()) + " values");
    }
    if (graph.is_graph_input(copy.value)) {
      return broken(Rule::kCopyValue, copy.issue,
                    describe(graph, copy) + ": it is an input of the graph, which no op makes");
    }
    if (!graph.copyable[copy.value]) {
      return broken(Rule::kCopyValue, copy.issue, describe(graph, copy) + ": the graph forbids it");
    }
    const bool is_in_order = copy.way == Way::kOut ? copy.issue < copy.wait : copy.issue <= copy.wait;
    if (copy.issue.is_none() || !is_in_order || copy.wait > end) {
      return broken(Rule::kCopySteps, StepId::none(),
                    describe(graph, copy) + ": issue " + text(copy.issue) + " and wait " + text(copy.wait) +
                        " are not steps in this order of a plan of " + text(end) + " steps");
    }
    StepId& last = last_issue[at(copy.way)];
    if (copy.issue < last) {
      return broken(Rule::kCopyOrder, copy.issue,
                    describe(graph, copy) + " is listed after one that is issued at step " + text(last));
    }
    last = copy.issue;
    if (copy.way == Way::kOut) {
      if (out_wait[copy.value]) {
        return broken(Rule::kCopyOnce, copy.issue, describe(graph, copy.value) + " is copied out twice");
      }
      out_wait[copy.value] = copy.wait;
    }
  }
  for (const Copy& copy : plan.copies) {
    if (copy.way == Way::kOut) continue;
    const StepId wait = out_wait[copy.value];
    if (!wait || wait > copy.issue) {
      return broken(Rule::kCopyBack, copy.issue,
                    describe(graph, copy) + (wait ? " is issued before step " + text(wait) +
                                                        ", at which its copy out is waited for"
                                                  : ", which is never copied out"));
    }
  }
  return std::nullopt;
}

/// The first broken rule about instances on the device.
std::optional<Violation> check_instances(const Graph& graph, const Plan& plan) {
  const auto fault = walk_copies(graph, plan).fault;
  if (!fault) return std::nullopt;
  const std::string value = describe(graph, fault->value);
  switch (fault->rule) {
    case Rule::kCopySource:
      return broken(fault->rule, fault->step, "the copy out of " + value + " has no instance to copy");
    case Rule::kKeptOnDevice:
      return broken(fault->rule, fault->step, "the output " + value + " is not on the device at the end");
    default:
      break;
  }
  const std::string reads = describe(graph, plan.steps[fault->step]) + " reads " + value;
  return broken(fault->rule, fault->step,
                reads + (fault->rule == Rule::kOnDevice ? ", which is not on the device"
                                                        : " before its copy in is waited for"));
}

std::optional<Violation> check_amounts(const Graph& graph, const Plan& plan, std::optional<Bytes> budget,
                                       const Host* host) {
  constexpr Wide kLimit = Wide{1} << 63;
  const bool has_time_of_copies = host && !plan.copies.empty();
  const Wide duration =
      has_time_of_copies ? time_copies(graph, plan, *host).duration : total_duration(graph, plan);
  if (duration >= kLimit) {
    return broken(Rule::kDuration, StepId::none(),
                  std::string(has_time_of_copies ? "steps and copies" : "the steps") + " take " +
                      to_string(duration) + " together, which is not below " + to_string(kLimit));
  }
  const bool has_host_budget = host && host->budget;
  if (!budget && !has_host_budget) return std::nullopt;
  const Simulation cost = simulate(graph, plan, host);
  if (budget && cost.peak > *budget) {
    return broken(Rule::kBudget, cost.peak_step,
                  "memory " + std::to_string(cost.peak.count()) + " is over the budget " +
                      std::to_string(budget->count()));
  }
  if (has_host_budget && cost.traffic.host_peak > *host->budget) {
    return broken(Rule::kHostBudget, StepId::none(),
                  "host memory " + std::to_string(cost.traffic.host_peak.count()) +
                      " is over the host's budget " + std::to_string(host->budget->count()));
  }
  return std::nullopt;
}

}  // namespace

std::optional<Violation> validate(const Graph& graph, const Plan& plan, OrderMode order,
                                  std::optional<Bytes> budget, const Host* host) {
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
  if (!plan.copies.empty()) {
    if (auto violation = check_copies(graph, plan)) return violation;
    if (auto violation = check_instances(graph, plan)) return violation;
  }
  return check_amounts(graph, plan, budget, host);
}

std::optional<Violation> validate(const Graph& graph, std::span<const std::int64_t> steps, OrderMode order,
                                  std::optional<Bytes> budget, std::span<const Copy> copies,
                                  const Host* host) {
  Plan plan;
  plan.steps.reserve(steps.size());
  for (std::int64_t index : steps) {
    if (auto violation = check_exists(graph, index, plan.steps.size())) return violation;
    plan.steps.push_back(OpId(index));
  }
  plan.copies.assign(copies.begin(), copies.end());
  return validate(graph, plan, order, budget, host);
}

}  // namespace remat
