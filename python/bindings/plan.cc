// remat.Plan and remat.Simulation; the validator and the reference simulator.
#include <nanobind/stl/filesystem.h>

#include "bindings.h"
#include "errors.h"
#include "remat/report.h"

namespace remat::python {
namespace {

const Host* pointer_to(const std::optional<Host>& host) { return host ? &*host : nullptr; }

BoundSimulation simulate_plan(const Graph& graph, const Plan& plan, const std::optional<Host>& host) {
  BoundSimulation result;
  IndexVector<StepId, Bytes> memory;
  result.cost = simulate(graph, plan, memory, pointer_to(host));
  result.is_timed = plan.copies.empty() || host;
  result.overhead = overhead(graph, result.cost.duration);
  result.recomputed_ops = recomputed_ops(graph, plan);
  result.memory.reserve(memory.size());
  for (Bytes b : memory) result.memory.push_back(b.count());
  for (const Overwrite& one : overwrites(graph, plan)) {
    result.overwrites.emplace_back(one.step.index(), one.pair.input.index(), one.pair.output.index());
  }
  return result;
}

PlanRecord record_of(const Graph& graph, nb::handle steps, nb::handle copies, nb::handle host) {
  PlanRecord record;
  record.order = OrderMode::kFree;
  record.steps = with_fault<PlanFault>([&] { return to_integers(steps, "steps"); });
  record.copies = with_fault<PlanFault>([&] { return copies_of(copies); });
  record.host = host_of(host, graph);
  return record;
}

BoundSimulation simulate_steps(const Graph& graph, nb::handle steps, nb::handle copies, nb::handle host) {
  const PlanRecord record = record_of(graph, steps, copies, host);
  nb::gil_scoped_release release;
  return simulate_plan(graph, checked_plan(graph, record, record.order), record.host);
}

/// Checks all numbers of a plan, recomputed from its steps.
BoundSimulation check(const Graph& graph, const PlanRecord& plan, nb::handle host) {
  PlanRecord record = plan;
  if (const auto given = host_of(host, graph)) record.host = given;
  if (record.host) with_fault<GraphFault>([&] { require_time_unit(graph); });
  nb::gil_scoped_release release;
  const Plan steps = checked_plan(graph, record, record.order, record.budget);
  const std::vector<std::string> differences = check_record(graph, record);
  if (!differences.empty()) {
    std::string message = differences.front();
    for (std::size_t i = 1; i < differences.size(); ++i) message += "; " + differences[i];
    throw PlanFault(message);
  }
  return simulate_plan(graph, steps, record.host);
}

void init_plan(PlanRecord* self, const Graph& graph, nb::object steps, const std::string& order,
               nb::object copies, nb::object host, std::optional<std::int64_t> budget,
               const std::string& planner) {
  PlanRecord record = record_of(graph, steps, copies, host);
  record.order = parse_order(order);
  if (budget) record.budget = Bytes(*budget);
  record.planner = planner;
  const Simulation cost =
      simulate(graph, checked_plan(graph, record, record.order, record.budget), pointer_to(record.host));
  record.graph_name = graph.name;
  record.graph_hash = graph_hash(graph);
  record.peak = cost.peak;
  if (record.copies.empty() || record.host) {
    record.duration = cost.duration;
    record.overhead = overhead(graph, cost.duration);
  }
  record.status = to_string(Status::kFeasible);
  new (self) PlanRecord{std::move(record)};
}

nb::str repr_of_plan(const PlanRecord& plan) {
  return nb::str("<remat.Plan of {!r}: {} steps, peak {}, overhead {}>")
      .format(plan.graph_name, plan.steps.size(), plan.peak, percent_text(plan.overhead));
}

/// List indexing: `index` is an integer (negative: from the end) or a slice.
template <class Index, class Item>
Item item(const PlanRecord& plan, Index index) {
  return nb::cast<Item>(nb::object(nb::cast(plan.steps)[index]));
}

void bind_plan_class(nb::module_& m) {
  nb::class_<PlanRecord> plan(m, "Plan",
                              "A sequence of steps, each running one op, and its cost; immutable.");
  plan.def("__init__", init_plan, nb::arg("graph"), nb::arg("steps"), nb::arg("order") = "fixed",
           nb::kw_only(), nb::arg("copies") = nb::make_tuple(), nb::arg("host").none() = nb::none(),
           nb::arg("budget") = nb::none(), nb::arg("planner") = "",
           nb::sig(
               "def __init__(self, graph: Graph, steps: collections.abc.Iterable[int], order: str = "
               "'fixed', *, copies: collections.abc.Iterable[tuple[int, str, int, int]] = (), host: Host | "
               "float | str | None = None, budget: int | None = None, planner: str = '') -> None"),
           "From op indices, and copies to a host and back; simulated at once. `budget`: the plan's "
           "budget in bytes. Raises PlanError naming the first broken rule, the budget's included.")
      .def_ro("steps", &PlanRecord::steps, "The op index of every step, as a list.")
      .def_prop_ro(
          "copies",
          [](const PlanRecord& p) {
            std::vector<std::tuple<ValueId, Way, StepId, StepId>> copies;
            for (const Copy& copy : p.copies)
              copies.emplace_back(copy.value, copy.way, copy.issue, copy.wait);
            return copies;
          },
          "Copies to the host and back: value, \"out\" or \"in\", step of issue, step of wait "
          "(docs/model.md).")
      .def_prop_ro("host", of(&PlanRecord::host), "The host that `duration` refers to, or None.")
      .def_ro("peak", &PlanRecord::peak, "Bytes, graph inputs included; None if missing in the file.")
      .def_ro("duration", &PlanRecord::duration,
              "Sum over all steps, in the graph's time unit; None if missing in the file.")
      .def_ro("overhead", &PlanRecord::overhead,
              "Extra duration as a fraction of running every op once; None if missing in the file.")
      .def_ro("budget", &PlanRecord::budget, "The plan's budget in bytes, or None.")
      .def_ro("order", &PlanRecord::order, "\"fixed\" or \"free\".")
      .def_ro("planner", &PlanRecord::planner)
      .def_ro("seed", &PlanRecord::seed)
      .def_ro("status", &PlanRecord::status)
      .def_ro("graph_name", &PlanRecord::graph_name)
      .def_ro("graph_hash", &PlanRecord::graph_hash)
      .def_ro("peak_lower_bound", &PlanRecord::peak_bound)
      .def_ro("duration_lower_bound", &PlanRecord::duration_bound)
      .def(
          "memory",
          [](const PlanRecord& p, const Graph& graph) {
            return array_of<Int64Array>(
                simulate_plan(graph, checked_plan(graph, p, OrderMode::kFree), std::nullopt).memory);
          },
          nb::arg("graph"),
          "Bytes in memory at every step: int64 array of shape (len(steps),). Raises PlanError.")
      .def("__len__", [](const PlanRecord& p) { return p.steps.size(); })
      .def(
          "__iter__", [](const PlanRecord& p) { return nb::iter(nb::cast(p.steps)); },
          nb::sig("def __iter__(self) -> collections.abc.Iterator[int]"))
      .def("__getitem__", item<std::int64_t, std::int64_t>,
           nb::sig("def __getitem__(self, index: int, /) -> int"), "The op index of a step.")
      .def("__getitem__", item<nb::slice, std::vector<std::int64_t>>,
           nb::sig("def __getitem__(self, index: slice, /) -> list[int]"))
      .def(
          "_repr_html_", [](const PlanRecord& p) { return notebook_html(p); }, "For notebooks.")
      .def("__repr__", repr_of_plan);
  def_file<PlanRecord>(
      plan, format_plan, [](const std::string& text) { return parse_plan(text, "pickled plan"); }, save_plan,
      "Writes a `remat.plan` file atomically. Raises RematError.");
}

template <class Get>
auto timed(Get get) {
  return [get](const BoundSimulation& s) {
    if (!s.is_timed) throw UsageError("how long copies take is not known without a host");
    return get(s);
  };
}

double share(const BoundSimulation& s, Duration busy) {
  const auto whole = static_cast<double>(s.cost.duration.count());
  return whole > 0 ? static_cast<double>(busy.count()) / whole : 0.0;
}

/// What copies add.
void bind_traffic(nb::class_<BoundSimulation>& simulation) {
  simulation
      .def_prop_ro("stalled", timed(of(&BoundSimulation::cost, &Simulation::traffic, &Traffic::stalled)),
                   nb::sig("def stalled(self) -> int"), "Time that the device waits for copies.")
      .def_prop_ro("bytes_out", of(&BoundSimulation::cost, &Simulation::traffic, &Traffic::out),
                   "Bytes copied to the host.")
      .def_prop_ro("bytes_in", of(&BoundSimulation::cost, &Simulation::traffic, &Traffic::in),
                   "Bytes copied back.")
      .def_prop_ro(
          "busy_out", timed([](const BoundSimulation& s) { return share(s, s.cost.traffic.busy_out); }),
          nb::sig("def busy_out(self) -> float"), "Share of `duration` in which copies out are running.")
      .def_prop_ro(
          "busy_in", timed([](const BoundSimulation& s) { return share(s, s.cost.traffic.busy_in); }),
          nb::sig("def busy_in(self) -> float"), "Share of `duration` in which copies in are running.")
      .def_prop_ro("host_peak", of(&BoundSimulation::cost, &Simulation::traffic, &Traffic::host_peak),
                   "Peak of the bytes on the host.");
}

void bind_simulation_class(nb::module_& m) {
  nb::class_<BoundSimulation> simulation(
      m, "Simulation", "The cost of running a sequence of steps, by the reference simulator.");
  bind_traffic(simulation);
  simulation.def_prop_ro("peak", of(&BoundSimulation::cost, &Simulation::peak), "Bytes.")
      .def_prop_ro("peak_step", of(&BoundSimulation::cost, &Simulation::peak_step),
                   "The first step that reaches the peak.")
      .def_prop_ro("duration", timed(of(&BoundSimulation::cost, &Simulation::duration)),
                   nb::sig("def duration(self) -> int"),
                   "In the graph's time unit. Raises UsageError for copies without a host.")
      .def_prop_ro("overhead", timed(of(&BoundSimulation::overhead)), nb::sig("def overhead(self) -> float"),
                   "Extra duration as a fraction of running every op once.")
      .def_ro("recomputed_ops", &BoundSimulation::recomputed_ops, "Steps beyond the first run of each op.")
      .def_prop_ro(
          "memory", [](const BoundSimulation& s) { return array_of<Int64Array>(s.memory); },
          nb::rv_policy::reference, "Bytes in memory at every step: read-only int64 array of shape (steps,).")
      .def_ro("overwrites", &BoundSimulation::overwrites,
              "Step, input and output wherever an output is written over an input that is not read again.")
      .def("__repr__", [](const BoundSimulation& s) {
        return nb::str("<remat.Simulation: {} steps, peak {} at step {}, duration {}>")
            .format(s.memory.size(), s.cost.peak, s.cost.peak_step,
                    s.is_timed ? nb::cast(s.cost.duration) : nb::str("unknown"));
      });
}

}  // namespace

Plan checked_plan(const Graph& graph, const PlanRecord& record, OrderMode order,
                  std::optional<Bytes> budget) {
  const Host* host = record.host && units_per_second(graph) ? &*record.host : nullptr;
  if (const auto violation = validate(graph, record.steps, order, budget, record.copies, host)) {
    throw PlanFault(*violation);
  }
  return recorded_plan(record);
}

void bind_plan(nb::module_& m) {
  bind_plan_class(m);
  bind_simulation_class(m);
  m.def("check", check, nb::arg("graph"), nb::arg("plan"), nb::arg("host").none() = nb::none(),
        nb::sig("def check(graph: Graph, plan: Plan, host: Host | float | str | None = None) -> Simulation"),
        "Checks a plan by its steps and copies alone: every rule, the budget, and the stated peak, "
        "duration,\n"
        "hash of the graph. Returns the cost of the steps; raises PlanError naming the first broken "
        "rule,\n"
        "the step and both numbers. Copies are timed on `host`, or else on the plan's own.");
  m.def("simulate", simulate_steps, nb::arg("graph"), nb::arg("steps"), nb::arg("copies") = nb::make_tuple(),
        nb::arg("host").none() = nb::none(),
        nb::sig("def simulate(graph: Graph, steps: collections.abc.Iterable[int], copies: "
                "collections.abc.Iterable[tuple[int, str, int, int]] = (), host: Host | float | str | None = "
                "None) -> Simulation"),
        "Runs op indices through the reference simulator, any order of first runs allowed, with copies to a\n"
        "host and back: (value, \"out\" or \"in\", step of issue, step of wait). Raises PlanError.");
}

}  // namespace remat::python
