// remat.Graph: made from Python objects, seen as numpy views.
#include <nanobind/stl/filesystem.h>

#include "errors.h"
#include "op.h"
#include "remat/bounds.h"
#include "remat/report.h"

namespace remat::python {
namespace {

OpId checked_op(const Graph& graph, std::int64_t index) {
  if (index < 0 || index >= static_cast<std::int64_t>(graph.num_ops())) {
    throw nb::index_error(
        ("op " + std::to_string(index) + " is not one of the " + std::to_string(graph.num_ops()) + " ops")
            .c_str());
  }
  return OpId(index);
}

ValueId checked_value(const Graph& graph, std::int64_t index) {
  if (index < 0 || index >= static_cast<std::int64_t>(graph.num_values())) {
    throw nb::index_error(("value " + std::to_string(index) + " is not one of the " +
                           std::to_string(graph.num_values()) + " values")
                              .c_str());
  }
  return ValueId(index);
}

BoolArray flags(const IndexVector<OpId, bool>& column) {
  std::vector<std::uint8_t> bytes(column.begin(), column.end());
  return array_of<BoolArray>(std::move(bytes));
}

/// `name` and `time_unit` are the only texts of a graph as a whole.
nb::str repr_of_graph(const Graph& graph) {
  return nb::str("<remat.Graph {!r}: {} ops, {} values>")
      .format(graph.name, graph.num_ops(), graph.num_values());
}

void bind_sizes(nb::class_<Graph>& graph) {
  graph.def_ro("name", &Graph::name)
      .def_ro("time_unit", &Graph::time_unit, "Unit of all durations, e.g. \"ns\".")
      .def_prop_ro("num_ops", [](const Graph& g) { return g.num_ops(); })
      .def_prop_ro("num_values", [](const Graph& g) { return g.num_values(); })
      .def_ro("resident", &Graph::resident, "Bytes of all graph inputs: in memory from start to end.")
      .def_ro("base_duration", &Graph::base_duration, "Duration of running every op once.")
      .def_prop_ro(
          "keep_all_peak", [](const Graph& g) { return keep_all_peak(g).count(); },
          "Peak, in bytes, of running every op once in the graph's order; budgets in percent refer to "
          "it.\n"
          " Simulated on each access, linear in the graph.")
      .def_prop_ro(
          "floor", [](const Graph& g) { return floor_bound(g).peak.count(); },
          "Lower bound on every plan's peak in bytes: the most that one op, or all kept outputs, need at "
          "once.\n"
          "Computed on each access, linear in the graph.")
      .def_prop_ro(
          "hash", [](const Graph& g) { return graph_hash(g); },
          "Hash of everything that a plan depends on, in hex digits; names do not count.");
}

void bind_columns(nb::class_<Graph>& graph) {
  graph
      .def_prop_ro(
          "bytes",
          [](nb::handle_t<Graph> self) { return view_of<Int64Array>(nb::cast<Graph&>(self).bytes, self); },
          nb::rv_policy::reference,
          "Bytes of every value: read-only int64 array of shape (num_values,), a view.")
      .def_prop_ro(
          "producers",
          [](nb::handle_t<Graph> self) { return view_of<Int32Array>(nb::cast<Graph&>(self).producer, self); },
          nb::rv_policy::reference,
          "The op that makes each value, -1 for a graph input: read-only int32 array of shape\n"
          "(num_values,), a view.")
      .def_prop_ro(
          "durations",
          [](nb::handle_t<Graph> self) { return view_of<Int64Array>(nb::cast<Graph&>(self).duration, self); },
          nb::rv_policy::reference,
          "Duration of every op: read-only int64 array of shape (num_ops,), a view.")
      .def_prop_ro(
          "workspaces",
          [](nb::handle_t<Graph> self) {
            return view_of<Int64Array>(nb::cast<Graph&>(self).workspace, self);
          },
          nb::rv_policy::reference,
          "Workspace of every op in bytes: read-only int64 array of shape (num_ops,), a view.")
      .def_prop_ro(
          "recomputable", [](const Graph& g) { return flags(g.recomputable); }, nb::rv_policy::reference,
          "Whether each op may run more than once: bool array of shape (num_ops,), a copy.")
      .def_ro("inputs", &Graph::graph_inputs, "Indices of the graph inputs, ascending.")
      .def_ro("outputs", &Graph::graph_outputs, "Indices of the kept values, ascending.");
}

/// `remat.Value`: one value of a graph.
struct BoundValue {
  std::int64_t index = 0;
  std::string name;
  std::int64_t bytes = 0;
  std::string copy;
  std::optional<std::int64_t> producer;
  std::vector<std::int64_t> readers;
};

BoundValue value_of(const Graph& graph, ValueId v) {
  const OpId producer = graph.producer[v];
  return {.index = v.index(),
          .name = std::string(graph.value_name[v]),
          .bytes = graph.bytes[v].count(),
          .copy = graph.copyable[v] ? "allowed" : "never",
          .producer = producer ? std::optional<std::int64_t>(producer.index()) : std::nullopt,
          .readers = indices(graph.readers[v])};
}

void bind_value(nb::module_& m) {
  nb::class_<BoundValue> value(m, "Value", "One value of a graph: a storage of some bytes.");
  value.def_ro("index", &BoundValue::index)
      .def_ro("name", &BoundValue::name)
      .def_ro("bytes", &BoundValue::bytes)
      .def_ro("copy", &BoundValue::copy, "\"allowed\" or \"never\": whether plans may copy it to a host.")
      .def_ro("producer", &BoundValue::producer, "Index of the op that makes it; None for a graph input.")
      .def_ro("readers", &BoundValue::readers, "Indices of the ops that read it, ascending.")
      .def("__repr__", [](const BoundValue& v) {
        return nb::str("<remat.Value {} {!r}: {} bytes>").format(v.index, v.name, v.bytes);
      });
  def_state<BoundValue>(value, nullptr, &BoundValue::index, &BoundValue::name, &BoundValue::bytes,
                        &BoundValue::copy, &BoundValue::producer, &BoundValue::readers);
}

void bind_entries(nb::class_<Graph>& graph) {
  graph
      .def_prop_ro(
          "ops",
          [](const Graph& g) {
            std::vector<BoundOp> ops;
            for (OpId op : g.ops()) ops.push_back(op_of(g, op));
            return ops;
          },
          "All ops in the graph's order, as a list of copies.")
      .def_prop_ro(
          "values",
          [](const Graph& g) {
            std::vector<BoundValue> values;
            for (ValueId v : g.values()) values.push_back(value_of(g, v));
            return values;
          },
          "All values by index, as a list of copies.")
      .def(
          "op", [](const Graph& g, std::int64_t op) { return op_of(g, checked_op(g, op)); }, nb::arg("op"),
          "The op with this index, as a copy. Raises IndexError.")
      .def(
          "op_name",
          [](const Graph& g, std::int64_t op) { return std::string(g.op_name[checked_op(g, op)]); },
          nb::arg("op"))
      .def(
          "op_inputs", [](const Graph& g, std::int64_t op) { return indices(g.inputs[checked_op(g, op)]); },
          nb::arg("op"), "Indices of the values that the op reads, ascending.")
      .def(
          "op_outputs", [](const Graph& g, std::int64_t op) { return indices(g.outputs[checked_op(g, op)]); },
          nb::arg("op"), "Indices of the values that the op makes, ascending.")
      .def(
          "op_over", [](const Graph& g, std::int64_t op) { return over_of(g, checked_op(g, op)); },
          nb::arg("op"), "Pairs of an input and the output that may be written over it, by input.")
      .def(
          "value_name",
          [](const Graph& g, std::int64_t value) {
            return std::string(g.value_name[checked_value(g, value)]);
          },
          nb::arg("value"))
      .def(
          "readers",
          [](const Graph& g, std::int64_t value) { return indices(g.readers[checked_value(g, value)]); },
          nb::arg("value"), "Indices of the ops that read the value, ascending.");
}

}  // namespace

void bind_graph(nb::module_& m) {
  bind_op(m);
  bind_value(m);
  nb::class_<Graph> graph(m, "Graph", "A directed acyclic graph of ops and values; never changes.");
  bind_graph_dict(graph);
  bind_sizes(graph);
  bind_columns(graph);
  bind_entries(graph);
  graph.def("__repr__", repr_of_graph)
      .def(
          "_repr_html_", [](const Graph& g) { return notebook_html(g); },
          "For notebooks: sizes, and the keep-all plan's memory by step.")
      .def("save", save_graph, nb::arg("path"),
           nb::sig("def save(self, path: str | os.PathLike[str]) -> None"),
           "Writes a `remat.graph` file atomically. Raises RematError.")
      .def("__hash__", [](const Graph& g) { return nb::hash(nb::str(graph_hash(g).c_str())); })
      .def("__getstate__", format_graph)
      .def(
          "__setstate__",
          [](Graph& g, const std::string& text) { new (&g) Graph(parse_graph(text, "pickled graph").graph); })
      .def("__copy__", [](nb::handle_t<Graph> self) { return nb::borrow(self); })
      .def(
          "__deepcopy__", [](nb::handle_t<Graph> self, nb::handle) { return nb::borrow(self); },
          nb::arg("memo"));
  def_equal(graph);
}

}  // namespace remat::python
