#include "helpers/reproduce.h"

#include <utility>

#include "remat/io.h"

namespace remat::testing {
namespace {

constexpr std::size_t kReadableOps = 60;

std::string& last() {
  static std::string text;
  return text;
}

}  // namespace

std::string reproduction(const Graph& graph) {
  if (graph.num_ops() > kReadableOps) return "# a graph of " + std::to_string(graph.num_ops()) + " ops\n";
  return "cat > graph.json <<'END'\n" + format_graph(graph) + "END\n";
}

std::string reproduction(const Call& call) {
  const Problem& problem = call.problem;
  std::string text = reproduction(*problem.graph) + "build/remat plan graph.json";
  if (problem.objective == Objective::kPeak) text += " --objective peak";
  if (problem.budget != kNoBudget) text += " --budget " + std::to_string(problem.budget.count());
  text += " --planner " + std::string(call.planner) + " --order " + std::string(to_string(problem.order)) +
          " --seed " + std::to_string(call.options.seed);
  if (call.options.threads != 1) text += " --threads " + std::to_string(call.options.threads);
  if (call.work_limit) text += " --work-limit " + std::to_string(*call.work_limit);
  for (const auto& [key, value] : call.options.set) text += " --set " + key + "=" + value;
  text += "\n";
  for (const Plan& start : problem.starts) {
    text += "# known before:";
    for (OpId op : start.steps) text.append(" ").append(std::to_string(op.index()));
    text += "\n";
  }
  return text;
}

void record(std::string what) { last() = std::move(what); }

const std::string& recorded() { return last(); }

Graph recorded(Graph graph) {
  record(reproduction(graph));
  return graph;
}

PlanResult recorded_plan(const Problem& problem, std::string_view planner, const PlanOptions& options,
                         Limits& limits) {
  record(reproduction({problem, planner, options, limits.work_left()}));
  return make_plan(problem, planner, options, limits);
}

}  // namespace remat::testing
