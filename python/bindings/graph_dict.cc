// Graphs from Python lists and dicts, and back: the same keys, defaults and rules as the file format.
#include <set>

#include "errors.h"
#include "op.h"
#include "remat/words.h"

namespace remat::python {
namespace {

/// Unknown keys, each once; all in one warning.
class UnknownKeys {
 public:
  void add(const std::string& key) { keys_.insert(key); }
  /// `depth` of the caller: 1, or 2 behind a Python wrapper.
  void warn(int depth) const {
    if (keys_.empty()) return;
    const std::string text = "graph: ignored unknown keys: " + listed({keys_.begin(), keys_.end()});
    if (PyErr_WarnEx(PyExc_UserWarning, text.c_str(), depth) < 0) throw nb::python_error();
  }

 private:
  std::set<std::string> keys_;
};

void require(nb::dict dict, std::initializer_list<const char*> keys, const std::string& place) {
  for (const char* key : keys) {
    if (!dict.contains(key)) throw InputError(place + ": the key '" + key + "' is missing");
  }
}

/// A value is its bytes alone or a dict with `bytes` and perhaps `name` and `copy`.
void add_value(GraphBuilder& builder, nb::handle item, std::size_t index, UnknownKeys& unknown) {
  const std::string place = "value " + std::to_string(index);
  if (!nb::isinstance<nb::dict>(item)) {
    builder.add_value(Bytes(to_integer(item, place + ": 'bytes'")));
    return;
  }
  const nb::dict dict = nb::borrow<nb::dict>(item);
  require(dict, {"bytes"}, place);
  std::string name;
  bool copyable = true;
  for (auto [key, value] : dict) {
    const std::string field = to_text(key, place + ": key");
    if (field == "name")
      name = to_text(value, place + ": 'name'");
    else if (field == "copy")
      copyable = choose(to_text(value, place + ": 'copy'"), {"allowed", "never"}, place + ": 'copy'") == 0;
    else if (field != "bytes")
      unknown.add("values[]." + field);
  }
  builder.add_value(Bytes(to_integer(dict["bytes"], place + ": 'bytes'")), name, copyable);
}

BoundOp read_op(nb::dict dict, std::size_t index, UnknownKeys& unknown) {
  BoundOp op;
  if (dict.contains("name")) set_field(op, "name", dict["name"], op_place(index, ""));
  const std::string place = op_place(index, op.name);
  require(dict, {"name", "duration", "inputs", "outputs"}, place);
  for (auto [key, value] : dict) {
    const std::string field = to_text(key, place + ": key");
    if (!set_field(op, field, value, place)) unknown.add("ops[]." + field);
  }
  return op;
}

/// A graph as Python gives it.
struct GraphParts {
  nb::object values, ops, inputs, outputs, name, time_unit;
};

Graph build_graph(const GraphParts& parts, UnknownKeys& unknown) {
  GraphBuilder builder(to_text(parts.name, "'name'"), to_text(parts.time_unit, "'time_unit'"));
  std::size_t index = 0;
  for (nb::handle item : items_of(parts.values, "'values'")) add_value(builder, item, index++, unknown);
  index = 0;
  for (nb::handle item : items_of(parts.ops, "'ops'")) {
    const BoundOp op = nb::isinstance<BoundOp>(item)
                           ? nb::cast<BoundOp>(item)
                           : read_op(to_dict(item, op_place(index, "")), index, unknown);
    add_op(builder, op, op_place(index++, op.name));
  }
  for (std::int64_t value : to_integers(parts.inputs, "'inputs'")) builder.add_input(value);
  for (std::int64_t value : to_integers(parts.outputs, "'outputs'")) builder.add_output(value);
  return builder.build();
}

void check_format(nb::dict dict) {
  require(dict, {"format", "version", "values", "ops"}, "graph");
  const std::string format = to_text(dict["format"], "'format'");
  if (format != "remat.graph") throw InputError("'format': found '" + format + "' instead of 'remat.graph'");
  const std::int64_t version = to_integer(dict["version"], "'version'");
  if (version != 1) {
    throw InputError("'version': version " + std::to_string(version) +
                     " is not supported; this reader knows version 1");
  }
}

nb::object get(nb::dict dict, const char* key, nb::object otherwise) {
  return dict.contains(key) ? nb::borrow(dict[key]) : otherwise;
}

/// Node-link JSON as an object. numpy's numbers become Python's.
Graph from_node_link(nb::dict dict) {
  LoadedGraph loaded = with_fault<GraphFault>([&] {
    const nb::object to_python = nb::module_::import_("operator").attr("methodcaller")("item");
    std::string text;
    try {
      text = nb::cast<std::string>(
          nb::module_::import_("json").attr("dumps")(dict, nb::arg("default") = to_python));
    } catch (const nb::python_error& error) {
      throw InputError(std::string("graph: not JSON: ") + nb::cast<std::string>(nb::str(error.value())));
    }
    return parse_graph(text, "graph");
  });
  warn(loaded.warnings);
  return std::move(loaded.graph);
}

Graph from_dict(nb::dict dict) {
  if (!dict.contains("format") && dict.contains("nodes")) return from_node_link(dict);
  UnknownKeys unknown;
  Graph graph = with_fault<GraphFault>([&] {
    static const std::set<std::string> kKeys{"format", "version", "name",   "time_unit",
                                             "values", "ops",     "inputs", "outputs"};
    check_format(dict);
    for (auto [key, value] : dict) {
      const std::string field = to_text(key, "key");
      if (!kKeys.contains(field)) unknown.add(field);
    }
    return build_graph({.values = dict["values"],
                        .ops = dict["ops"],
                        .inputs = get(dict, "inputs", nb::list()),
                        .outputs = get(dict, "outputs", nb::list()),
                        .name = get(dict, "name", nb::str("")),
                        .time_unit = get(dict, "time_unit", nb::str(""))},
                       unknown);
  });
  unknown.warn(2);
  return graph;
}

void init_graph(Graph* self, nb::object values, nb::object ops, nb::object inputs, nb::object outputs,
                nb::object name, nb::object time_unit) {
  UnknownKeys unknown;
  Graph graph = with_fault<GraphFault>(
      [&] { return build_graph({values, ops, inputs, outputs, name, time_unit}, unknown); });
  unknown.warn(1);
  new (self) Graph(std::move(graph));
}

nb::list values_to_list(const Graph& graph) {
  nb::list values;
  for (ValueId v : graph.values()) {
    nb::dict value;
    value["bytes"] = graph.bytes[v].count();
    if (!graph.value_name[v].empty()) value["name"] = std::string(graph.value_name[v]);
    if (!graph.copyable[v]) value["copy"] = "never";
    values.append(value);
  }
  return values;
}

/// Keys that hold their default are left out, as in files.
nb::dict op_to_dict(const BoundOp& op) {
  nb::dict dict;
  dict["name"] = op.name;
  if (!op.kind.empty()) dict["kind"] = op.kind;
  dict["duration"] = op.duration;
  if (op.workspace != 0) dict["workspace"] = op.workspace;
  if (op.generator_state != 0) dict["generator_state"] = op.generator_state;
  dict["inputs"] = op.inputs;
  dict["outputs"] = op.outputs;
  if (op.recompute != "allowed") dict["recompute"] = op.recompute;
  if (!op.after.empty()) dict["after"] = op.after;
  nb::list over;
  for (const auto& [input, output] : op.over) over.append(std::vector{input, output});
  if (!op.over.empty()) dict["over"] = over;
  if (!op.phase.empty()) dict["phase"] = op.phase;
  if (!op.module.empty()) dict["module"] = op.module;
  if (!op.source.empty()) dict["source"] = op.source;
  if (op.forward_of) dict["forward_of"] = *op.forward_of;
  return dict;
}

nb::dict graph_to_dict(const Graph& graph) {
  nb::dict dict;
  dict["format"] = "remat.graph";
  dict["version"] = 1;
  dict["name"] = graph.name;
  dict["time_unit"] = graph.time_unit;
  dict["values"] = values_to_list(graph);
  nb::list ops, inputs, outputs;
  for (OpId op : graph.ops()) ops.append(op_to_dict(op_of(graph, op)));
  for (ValueId v : graph.graph_inputs) inputs.append(v.index());
  for (ValueId v : graph.graph_outputs) outputs.append(v.index());
  dict["ops"] = ops;
  dict["inputs"] = inputs;
  dict["outputs"] = outputs;
  return dict;
}

}  // namespace

void bind_graph_dict(nb::class_<Graph>& graph) {
  graph
      .def("__init__", init_graph, nb::arg("values"), nb::arg("ops"), nb::arg("inputs") = nb::list(),
           nb::arg("outputs") = nb::list(), nb::arg("name") = "", nb::arg("time_unit") = "ns",
           nb::sig("def __init__(self, values: collections.abc.Iterable[int | dict[str, typing.Any]], ops: "
                   "collections.abc.Iterable[Op | dict[str, typing.Any]], "
                   "inputs: collections.abc.Iterable[int] = (), outputs: collections.abc.Iterable[int] = (), "
                   "name: str = '', "
                   "time_unit: str = 'ns') -> None"),
           "`values`: bytes of each value, as integers, as a numpy integer array, or as dicts with "
           "`bytes` and\n"
           "`name`. `ops`: in topological order, as Op or as dicts with the keys of the file format. "
           "`inputs`,\n"
           "`outputs`: value indices. Raises GraphError naming the op, the value and any two numbers that "
           "disagree.")
      .def_static(
          "from_dict", from_dict, nb::arg("graph"),
          nb::sig("def from_dict(graph: dict[str, typing.Any]) -> Graph"),
          "From the object of a `remat.graph` version 1 file or of node-link JSON (docs/formats.md), as\n"
          "`load_graph` reads them. Raises GraphError; unknown keys give one UserWarning.")
      .def_static(
          "from_networkx",
          [](nb::handle other, nb::handle inputs, nb::handle outputs) {
            return nb::module_::import_("remat.converters.from_networkx")
                .attr("graph_of")(other, inputs, outputs);
          },
          nb::arg("graph"), nb::arg("inputs") = nb::tuple(), nb::arg("outputs") = nb::tuple(),
          nb::sig("def from_networkx(graph: typing.Any, inputs: collections.abc.Iterable[typing.Any] = (), "
                  "outputs: collections.abc.Iterable[typing.Any] = ()) -> Graph"),
          "From a directed graph of networkx: an op and a value for each node, with the attributes of\n"
          "node-link JSON (docs/graphs.md): `out_cost` or `cost_ram` in bytes, `duration` or `cost_cpu`,\n"
          "`workspace`, `backward`, `name`. `inputs`: nodes that are graph inputs, without an op; "
          "`outputs`:\n"
          "nodes whose values are kept. Raises GraphError, which names the nodes of a cycle.")
      .def("to_dict", graph_to_dict, nb::sig("def to_dict(self) -> dict[str, typing.Any]"),
           "The object of a `remat.graph` version 1 file; `from_dict` makes an equal graph of it.");
}

}  // namespace remat::python
