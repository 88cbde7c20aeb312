// Plan records: made from a result, checked against a graph.
#include <cmath>

#include "io/differences.h"
#include "io/json_text.h"
#include "remat/io.h"

namespace remat {

Plan recorded_plan(const PlanRecord& record) {
  Plan plan;
  plan.steps.reserve(record.steps.size());
  for (std::int64_t op : record.steps) plan.steps.push_back(OpId(op));
  plan.copies = record.copies;
  return plan;
}

PlanRequest make_request(const Problem& problem, std::string_view planner, const PlanOptions& options) {
  PlanRequest request;
  request.version = REMAT_VERSION;
  request.planner = planner;
  request.objective = problem.objective;
  request.threads = options.threads;
  request.options = options.set;
  return request;
}

PlanRecord make_record(const Problem& problem, const PlanResult& result, std::uint64_t seed) {
  const Graph& graph = *problem.graph;
  PlanRecord plan;
  plan.graph_name = graph.name;
  plan.graph_hash = graph_hash(graph);
  if (problem.budget != kNoBudget) plan.budget = problem.budget;
  plan.order = result.order;
  plan.planner = result.planner;
  plan.seed = seed;
  plan.status = to_string(result.status);
  plan.peak = result.cost.peak;
  plan.duration = result.cost.duration;
  plan.overhead = overhead(graph, result.cost.duration);
  plan.peak_bound = result.peak_bound.peak;
  plan.duration_bound = result.duration_bound.duration;
  if (result.plan) {
    for (OpId op : result.plan->steps) plan.steps.push_back(op.index());
    plan.copies = result.plan->copies;
    if (!plan.copies.empty()) plan.host = problem.host;
  }
  return plan;
}

std::vector<std::string> check_record(const Graph& graph, const PlanRecord& plan) {
  io::Differences differences("the plan");
  if (!plan.graph_hash.empty()) differences.compare("graph_hash", plan.graph_hash, graph_hash(graph));
  if (!plan.graph_name.empty()) {
    differences.compare("graph", "'" + plan.graph_name + "'", "'" + graph.name + "'");
  }
  const Host* host = plan.host ? &*plan.host : nullptr;
  if (host && !units_per_second(graph)) host = nullptr;
  const auto violation = validate(graph, plan.steps, plan.order, plan.budget, plan.copies, host);
  if (violation) {
    differences.lines.insert(differences.lines.begin(), violation->message);
    if (violation->rule != Rule::kBudget && violation->rule != Rule::kHostBudget) return differences.lines;
  }
  const Simulation cost = simulate(graph, recorded_plan(plan), host);
  differences.compare("peak", plan.peak, cost.peak);
  // Without a host, durations of plans with copies cannot be checked.
  if (!plan.copies.empty() && !host) return differences.lines;
  differences.compare("duration", plan.duration, cost.duration);
  const double ratio = overhead(graph, cost.duration);
  // Remat writes all digits; other programs may write fewer.
  if (plan.overhead && !(std::abs(*plan.overhead - ratio) <= 1e-9 * std::max(1.0, ratio))) {
    differences.add("overhead", io::spell(*plan.overhead), io::spell(ratio));
  }
  differences.bound("bounds.peak", plan.peak_bound, cost.peak);
  differences.bound("bounds.duration", plan.duration_bound, cost.duration);
  if (plan.status == to_string(Status::kInfeasible) || plan.status == to_string(Status::kUnknown)) {
    differences.add("status", plan.status, "a valid plan");
  }
  return differences.lines;
}

}  // namespace remat
