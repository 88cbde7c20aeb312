// A row for each step, for spreadsheets and scripts.
#include "base/numbers.h"
#include "report/plans.h"

namespace remat::report {
namespace {

/// A CSV field, in double quotes if needed, with inner quotes doubled.
std::string field(std::string_view text) {
  if (text.find_first_of(",\"\n\r") == std::string_view::npos) return std::string(text);
  std::string quoted = "\"";
  for (char c : text) quoted += c == '"' ? std::string("\"\"") : std::string(1, c);
  return quoted + '"';
}

}  // namespace

std::string csv_text(const Graph& graph, const Shown& shown) {
  std::string text = "step,op,name,kind,module,phase,recomputed,start,duration,memory";
  for (std::size_t kind = 0; kind < kMemoryKinds; ++kind) {
    text += "," + std::string(to_string(static_cast<MemoryKind>(kind)));
  }
  if (!shown.measured.empty()) text += ",measured";
  if (shown.host) text += ",host";
  text += "\n";
  const auto memory = memory_by_kind(graph, shown.plan);
  const auto times = plan_times(graph, shown.plan, shown.host).steps;
  const auto on_host = host_memory(graph, shown.plan);
  IndexVector<OpId, bool> ran(graph.num_ops());
  for (StepId step : shown.plan.steps.ids()) {
    const OpId op = shown.plan.steps[step];
    Bytes sum;
    for (Bytes bytes : memory[step]) sum += bytes;
    text += std::to_string(step.index()) + "," + std::to_string(op.index()) + "," + field(graph.op_name[op]) +
            "," + field(graph.op_kind[op]) + "," + field(graph.op_module[op]) + "," +
            std::string(to_string(graph.phase[op])) + "," + (ran[op] ? "1" : "0") + "," +
            std::to_string(times[step].begin.count()) + "," + std::to_string(graph.duration[op].count()) +
            "," + std::to_string(sum.count());
    for (Bytes bytes : memory[step]) text += "," + std::to_string(bytes.count());
    if (!shown.measured.empty()) {
      text += "," + std::to_string(shown.measured[at(step)].count());
    }
    if (shown.host) text += "," + std::to_string(on_host[step].count());
    text += "\n";
    ran[op] = true;
  }
  return text;
}

}  // namespace remat::report
