// A plan as a graph of its steps, for Graphviz.
#include "remat/error.h"
#include "report/plans.h"

namespace remat::report {
namespace {

std::string in_quotes(std::string_view text) {
  std::string word = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') word += '\\';
    word += c == '\n' ? ' ' : c;
  }
  return word + '"';
}

/// "7: layer.0.mm", the op's number where it has no name.
std::string label(const Graph& graph, StepId step, OpId op) {
  const std::string_view name = graph.op_name[op];
  return std::to_string(step.index()) + ": " +
         (name.empty() ? "op " + std::to_string(op.index()) : std::string(name));
}

std::string value_label(const Graph& graph, ValueId value) {
  const std::string bytes = std::to_string(graph.bytes[value].count()) + " B";
  const std::string_view name = graph.value_name[value];
  return name.empty() ? bytes : std::string(name) + ", " + bytes;
}

}  // namespace

std::string dot_text(const Graph& graph, const Shown& shown) {
  if (!shown.plan.copies.empty())
    throw UsageError("the format dot shows no copies, and " + shown.title + " has some");
  std::string text = "digraph " + in_quotes(shown.title) + " {\n  node [shape=box];\n";
  for (const ValueId input : graph.graph_inputs) {
    text += "  v" + std::to_string(input.index()) +
            " [shape=ellipse, label=" + in_quotes(value_label(graph, input)) + "];\n";
  }
  IndexVector<OpId, bool> ran(graph.num_ops());
  IndexVector<ValueId, StepId> made(graph.num_values());
  for (const StepId step : shown.plan.steps.ids()) {
    const OpId op = shown.plan.steps[step];
    const std::string node = "s" + std::to_string(step.index());
    text += "  " + node + " [label=" + in_quotes(label(graph, step, op)) + (ran[op] ? ", style=filled" : "") +
            "];\n";
    for (const ValueId value : graph.inputs[op]) {
      if (graph.is_graph_input(value)) {
        text += "  v" + std::to_string(value.index()) + " -> " + node + ";\n";
      } else {
        text += "  s" + std::to_string(made[value].index()) + " -> " + node +
                " [label=" + in_quotes(value_label(graph, value)) + "];\n";
      }
    }
    for (const ValueId value : graph.outputs[op]) made[value] = step;
    ran[op] = true;
  }
  return text + "}\n";
}

}  // namespace remat::report
