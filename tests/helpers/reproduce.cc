#include "helpers/reproduce.h"

#include "remat/io.h"

namespace remat::testing {
std::string reproduction(const Graph& graph) {
  return "cat > graph.json <<'END'\n" + format_graph(graph) + "END\n";
}

std::string reproduction(const Call& call) {
  const Problem& problem = call.problem;
  std::string text = reproduction(*problem.graph) + "build/remat plan graph.json";
  if (problem.objective == Objective::kPeak) {
    text += " --objective peak";
  } else {
    text += " --budget " + std::to_string(problem.budget.count());
  }
  text += " --planner " + std::string(call.planner) + " --order " + std::string(to_string(problem.order)) +
          " --seed " + std::to_string(call.options.seed);
  if (call.options.threads != 1) text += " --threads " + std::to_string(call.options.threads);
  if (call.work_limit) text += " --work-limit " + std::to_string(*call.work_limit);
  for (const auto& [key, value] : call.options.set) text += " --set " + key + "=" + value;
  text += "\n";
  for (const Plan& start : problem.starts) {
    text += "# known before:";
    for (OpId op : start.steps) text += " " + std::to_string(op.index());
    text += "\n";
  }
  return text;
}

}  // namespace remat::testing
