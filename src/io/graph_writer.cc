// One value or op per line, for readable diffs and line numbers in messages.
#include <array>
#include <span>

#include "io/json_text.h"
#include "remat/check.h"
#include "remat/io.h"

namespace remat {
namespace {

template <class Range>
void append_indices(std::string& text, const Range& ids) {
  text += '[';
  bool first = true;
  for (auto id : ids) {
    if (!first) text += ',';
    first = false;
    text += std::to_string(id.index());
  }
  text += ']';
}

void append_text(std::string& text, std::string_view key, std::string_view value) {
  if (value.empty()) return;
  text += ",\"";
  text += key;
  text += "\":" + io::quoted(value);
}

void append_value(std::string& text, const Graph& graph, ValueId value) {
  text += "{\"bytes\":" + std::to_string(graph.bytes[value].count());
  append_text(text, "name", graph.value_name[value]);
  if (!graph.copyable[value]) text += ",\"copy\":\"never\"";
  text += '}';
}

void append_over(std::string& text, std::span<const Over> row) {
  text += ",\"over\":[";
  for (const Over& pair : row) {
    if (&pair != row.data()) text += ',';
    append_indices(text, std::array{pair.input, pair.output});
  }
  text += ']';
}

void append_op(std::string& text, const Graph& graph, OpId op) {
  text += "{\"name\":" + io::quoted(graph.op_name[op]);
  append_text(text, "kind", graph.op_kind[op]);
  text += ",\"duration\":" + std::to_string(graph.duration[op].count());
  if (graph.workspace[op] != Bytes()) text += ",\"workspace\":" + std::to_string(graph.workspace[op].count());
  if (const Bytes state = graph.generator_state[op]; state != Bytes())
    text += ",\"generator_state\":" + std::to_string(state.count());
  text += ",\"inputs\":";
  append_indices(text, graph.inputs[op]);
  text += ",\"outputs\":";
  append_indices(text, graph.outputs[op]);
  if (!graph.recomputable[op]) text += ",\"recompute\":\"never\"";
  if (!graph.after[op].empty()) {
    text += ",\"after\":";
    append_indices(text, graph.after[op]);
  }
  if (!graph.over[op].empty()) append_over(text, graph.over[op]);
  append_text(text, "phase", to_string(graph.phase[op]));
  append_text(text, "module", graph.op_module[op]);
  append_text(text, "source", graph.op_source[op]);
  if (graph.forward_of[op]) text += ",\"forward_of\":" + std::to_string(graph.forward_of[op].index());
  text += '}';
}

template <class Ids, class Append>
void append_lines(std::string& text, Ids ids, Append&& append) {
  const char* separator = "\n";
  for (auto id : ids) {
    text += separator;
    separator = ",\n";
    append(id);
  }
}

}  // namespace

std::string format_graph(const Graph& graph) {
  std::string text = "{\"format\":\"remat.graph\",\"version\":1";
  append_text(text, "name", graph.name);
  append_text(text, "time_unit", graph.time_unit);
  text += ",\n\"values\":[";
  append_lines(text, graph.values(), [&](ValueId value) { append_value(text, graph, value); });
  text += "],\n\"ops\":[";
  append_lines(text, graph.ops(), [&](OpId op) { append_op(text, graph, op); });
  text += "],\n\"inputs\":";
  append_indices(text, graph.graph_inputs);
  text += ",\n\"outputs\":";
  append_indices(text, graph.graph_outputs);
  text += "}\n";
  // U+FFFD replaces bytes that are not UTF-8.
  REMAT_ASSERT_HEAVY(
      text.find("\xef\xbf\xbd") != std::string::npos || parse_graph(text, "what was written").graph == graph,
      graph.num_ops(), text.size());
  return text;
}

void save_graph(const Graph& graph, const std::filesystem::path& path) {
  write_file(path, format_graph(graph), FileKind::kGraph);
}

}  // namespace remat
