#include "op.h"

#include "errors.h"

namespace remat::python {
namespace {

std::vector<std::pair<std::int64_t, std::int64_t>> to_pairs(nb::handle object, const std::string& what) {
  std::vector<std::pair<std::int64_t, std::int64_t>> pairs;
  for (nb::handle item : items_of(object, what, "an array of pairs of integers")) {
    const std::vector<std::int64_t> pair = to_integers(item, what);
    if (pair.size() != 2) {
      throw InputError(what + ": found " + std::to_string(pair.size()) +
                       " integers instead of an input and an output");
    }
    pairs.emplace_back(pair[0], pair[1]);
  }
  return pairs;
}

std::int64_t to_op_index(nb::handle value, const std::string& what) {
  const std::int64_t index = to_integer(value, what);
  if (index < 0) throw InputError(what + ": " + std::to_string(index) + " is not an op index");
  return index;
}

void init_op(BoundOp* self, nb::object name, nb::object duration, nb::object inputs, nb::object outputs,
             nb::kwargs fields) {
  BoundOp op;
  with_fault<GraphFault>([&] {
    set_field(op, "name", name, "op");
    const std::string place = "op '" + op.name + "'";
    set_field(op, "duration", duration, place);
    set_field(op, "inputs", inputs, place);
    set_field(op, "outputs", outputs, place);
    for (auto [field, value] : fields) {
      const std::string name_of_field = nb::cast<std::string>(field);
      if (!set_field(op, name_of_field, value, place)) {
        throw nb::type_error(("Op has no field '" + name_of_field + "'").c_str());
      }
    }
  });
  new (self) BoundOp(std::move(op));
}

nb::str repr_of_op(const BoundOp& op) {
  return nb::str("Op({!r}, duration={}, inputs={}, outputs={})")
      .format(op.name, op.duration, op.inputs, op.outputs);
}

}  // namespace

std::string op_place(std::size_t index, const std::string& name) {
  return "op " + std::to_string(index) + (name.empty() ? "" : " '" + name + "'");
}

bool set_field(BoundOp& op, const std::string& field, nb::handle value, const std::string& place) {
  const std::string what = place + ": '" + field + "'";
  if (field == "name")
    op.name = to_text(value, what);
  else if (field == "duration")
    op.duration = to_integer(value, what);
  else if (field == "inputs")
    op.inputs = to_integers(value, what);
  else if (field == "outputs")
    op.outputs = to_integers(value, what);
  else if (field == "workspace")
    op.workspace = to_integer(value, what);
  else if (field == "generator_state")
    op.generator_state = to_integer(value, what);
  else if (field == "kind")
    op.kind = to_text(value, what);
  else if (field == "module")
    op.module = to_text(value, what);
  else if (field == "source")
    op.source = to_text(value, what);
  else if (field == "recompute")
    op.recompute = to_text(value, what);
  else if (field == "after")
    op.after = to_integers(value, what);
  else if (field == "over")
    op.over = to_pairs(value, what);
  else if (field == "phase")
    op.phase = to_text(value, what);
  else if (field == "forward_of")
    op.forward_of = value.is_none() ? std::nullopt : std::optional(to_op_index(value, what));
  else
    return false;
  return true;
}

void add_op(GraphBuilder& builder, const BoundOp& op, const std::string& place) {
  OpSpec spec;
  spec.name = op.name;
  spec.kind = op.kind;
  spec.module = op.module;
  spec.source = op.source;
  spec.duration = Duration(op.duration);
  spec.workspace = Bytes(op.workspace);
  spec.generator_state = Bytes(op.generator_state);
  spec.recomputable = choose(op.recompute, {"allowed", "never"}, place + ": 'recompute'") == 0;
  spec.phase = static_cast<Phase>(
      choose(op.phase, {"", "forward", "loss", "backward", "update"}, place + ": 'phase'"));
  spec.forward_of = op.forward_of.value_or(-1);
  spec.inputs = op.inputs;
  spec.outputs = op.outputs;
  spec.after = op.after;
  std::vector<std::array<std::int64_t, 2>> over;
  for (const auto& [input, output] : op.over) over.push_back({input, output});
  spec.over = over;
  builder.add_op(spec);
}

BoundOp op_of(const Graph& graph, OpId id) {
  BoundOp op;
  op.name = graph.op_name[id];
  op.duration = graph.duration[id].count();
  op.inputs = indices(graph.inputs[id]);
  op.outputs = indices(graph.outputs[id]);
  op.workspace = graph.workspace[id].count();
  op.generator_state = graph.generator_state[id].count();
  op.kind = graph.op_kind[id];
  op.module = graph.op_module[id];
  op.source = graph.op_source[id];
  op.recompute = graph.recomputable[id] ? "allowed" : "never";
  op.after = indices(graph.after[id]);
  op.phase = to_string(graph.phase[id]);
  op.over = over_of(graph, id);
  if (graph.forward_of[id]) op.forward_of = graph.forward_of[id].index();
  return op;
}

std::vector<std::pair<std::int64_t, std::int64_t>> over_of(const Graph& graph, OpId op) {
  std::vector<std::pair<std::int64_t, std::int64_t>> pairs;
  for (const Over& pair : graph.over[op]) pairs.emplace_back(pair.input.index(), pair.output.index());
  return pairs;
}

void bind_op(nb::module_& m) {
  nb::class_<BoundOp> op(m, "Op", "One op of a graph, with the field names of the file format.");
  op.def("__init__", init_op, nb::arg("name"), nb::arg("duration"), nb::arg("inputs"), nb::arg("outputs"),
         nb::arg("fields"),
         nb::sig("def __init__(self, name: str, duration: int, inputs: collections.abc.Sequence[int], "
                 "outputs: collections.abc.Sequence[int], *, "
                 "workspace: int = 0, kind: str = '', module: str = '', recompute: str = 'allowed', "
                 "after: collections.abc.Sequence[int] = (), phase: str = '', forward_of: int | None = "
                 "None, over: collections.abc.Sequence[tuple[int, int]] = (), source: str = '', "
                 "generator_state: int = 0) -> None"),
         "`duration` in the graph's time unit, `workspace` in bytes, `inputs` and `outputs` as value "
         "indices,\n"
         "`after` and `forward_of` as op indices; `recompute` is \"allowed\" or \"never\"; `phase` is "
         "\"forward\",\n"
         "\"loss\", \"backward\", \"update\" or \"\"; `over` holds pairs of an input and the output that "
         "may be "
         "written\n"
         "over it; `generator_state` is the bytes of the state that an op of random numbers draws from.\n"
         "Raises GraphError for a value of the wrong type.")
      .def_ro("name", &BoundOp::name)
      .def_ro("duration", &BoundOp::duration, "In the graph's time unit.")
      .def_ro("inputs", &BoundOp::inputs, "Indices of its input values.")
      .def_ro("outputs", &BoundOp::outputs, "Indices of its output values.")
      .def_ro("workspace", &BoundOp::workspace, "Bytes needed only while it runs.")
      .def_ro("generator_state", &BoundOp::generator_state,
              "Bytes of the random generator's state that is saved if it runs again.")
      .def_ro("kind", &BoundOp::kind)
      .def_ro("module", &BoundOp::module)
      .def_ro("source", &BoundOp::source, "The source line that called it: \"model.py:42\".")
      .def_ro("recompute", &BoundOp::recompute, "\"allowed\" or \"never\".")
      .def_ro("after", &BoundOp::after, "Indices of further ops that must run before it.")
      .def_ro("phase", &BoundOp::phase)
      .def_ro("forward_of", &BoundOp::forward_of, "Index of the forward op that it differentiates, or None.")
      .def_ro("over", &BoundOp::over, "Pairs of an input and the output that may be written over it.")
      .def("__repr__", repr_of_op);
  def_equal(op);
  def_state<BoundOp>(op, nullptr, &BoundOp::name, &BoundOp::duration, &BoundOp::inputs, &BoundOp::outputs,
                     &BoundOp::workspace, &BoundOp::generator_state, &BoundOp::kind, &BoundOp::module,
                     &BoundOp::source, &BoundOp::recompute, &BoundOp::after, &BoundOp::phase,
                     &BoundOp::forward_of, &BoundOp::over);
}

}  // namespace remat::python
