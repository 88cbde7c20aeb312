// remat.layout: from live bytes to one arena.
#include "remat/layout.h"

#include <nanobind/stl/filesystem.h>

#include "bindings.h"
#include "effort.h"
#include "errors.h"
#include "planner_thread.h"
#include "remat/bounds.h"
#include "remat/layout_io.h"

namespace remat::python {
namespace {

/// `remat.LayoutResult`.
struct BoundLayoutResult {
  LayoutProblem problem;
  LayoutResult result;
  Bytes resident, live_peak;
  std::optional<LayoutRecord> record;  ///< of a plan

  bool found() const { return result.status == Status::kOptimal || result.status == Status::kFeasible; }
};

LayoutProblem problem_of(nb::handle lower, nb::handle upper, nb::handle size) {
  LayoutProblem problem;
  const auto first = with_fault<UsageError>([&] { return to_integers(lower, "lower"); });
  const auto end = with_fault<UsageError>([&] { return to_integers(upper, "upper"); });
  const auto bytes = with_fault<UsageError>([&] { return to_integers(size, "size"); });
  if (first.size() != end.size() || first.size() != bytes.size()) {
    throw UsageError("lower, upper and size have " + std::to_string(first.size()) + ", " +
                     std::to_string(end.size()) + " and " + std::to_string(bytes.size()) + " entries");
  }
  for (std::size_t k = 0; k < first.size(); ++k) {
    problem.buffers.push_back({first[k], end[k], Bytes(bytes[k])});
  }
  return problem;
}

void solve(BoundLayoutResult& outcome, const Effort& effort, nb::handle progress) {
  PlannerThread thread;
  effort.apply(thread.limits());
  LayoutOptions options;
  options.seed = effort.options.seed;
  thread.run(
      [&] {
        outcome.result = make_layout(outcome.problem, options, thread.limits());
        outcome.live_peak = live_peak(outcome.problem);
      },
      progress);
}

BoundLayoutResult layout_plan(const Graph& graph, const BoundPlan& plan, nb::handle capacity,
                              std::int64_t alignment, const Effort& effort, nb::handle progress) {
  const Plan steps = checked_plan(graph, plan.record, OrderMode::kFree);
  PlanBuffers buffers = plan_buffers(graph, steps, alignment);
  const auto most = parse_budget_object(capacity, keep_all_peak(graph), floor_bound(graph).peak);
  if (most) buffers.problem.capacity = *most - buffers.resident;
  BoundLayoutResult outcome;
  outcome.problem = buffers.problem;
  outcome.resident = buffers.resident;
  solve(outcome, effort, progress);
  outcome.record = make_layout_record(graph, steps, buffers, outcome.result);
  return outcome;
}

BoundLayoutResult layout_buffers(nb::handle lower, nb::handle upper, nb::handle size, nb::handle capacity,
                                 std::int64_t alignment, const Effort& effort, nb::handle progress) {
  BoundLayoutResult outcome;
  outcome.problem = problem_of(lower, upper, size);
  outcome.problem.alignment = alignment;
  outcome.problem.capacity = parse_budget_object(capacity, Bytes(), Bytes());
  solve(outcome, effort, progress);
  return outcome;
}

/// Checks all numbers of a layout, recomputed from the plan and the offsets alone.
void check_layout(const Graph& graph, const BoundPlan& plan, const BoundLayout& layout) {
  nb::gil_scoped_release release;
  const Plan steps = checked_plan(graph, plan.record, OrderMode::kFree);
  const std::vector<std::string> differences = check_layout_record(graph, steps, layout.record);
  if (differences.empty()) return;
  std::string message = differences.front();
  for (std::size_t i = 1; i < differences.size(); ++i) message += "; " + differences[i];
  throw PlanFault(message);
}

void bind_layout_class(nb::module_& m) {
  nb::class_<LayoutEntry>(m, "LayoutBuffer", "A buffer of a plan and its place in the pool.")
      .def_ro("value", &LayoutEntry::value, "The buffer's value; None for a workspace.")
      .def_ro("first", &LayoutEntry::first, "The step that writes it, or that uses the workspace.")
      .def_ro("end", &LayoutEntry::end, "The step after the last one that uses it.")
      .def_prop_ro("bytes", [](const LayoutEntry& e) { return e.bytes.count(); })
      .def_prop_ro(
          "offset", [](const LayoutEntry& e) { return e.offset.count(); }, "Offset in the pool in bytes.")
      .def("__repr__", [](const LayoutEntry& e) {
        return nb::str("<remat.LayoutBuffer: value {}, steps [{}, {}), bytes [{}, {})>")
            .format(e.value ? nb::cast(*e.value) : nb::none(), e.first, e.end, e.offset.count(),
                    e.offset.count() + e.bytes.count());
      });
  nb::class_<BoundLayout>(m, "Layout", "The offsets of a plan's buffers in one pool; never changes.")
      .def_prop_ro(
          "buffers", [](const BoundLayout& l) { return l.record.buffers; },
          "Instances by the step that makes them, then workspaces; without empty ones.")
      .def_prop_ro(
          "alignment", [](const BoundLayout& l) { return l.record.alignment; },
          "Every offset is a multiple of this.")
      .def_prop_ro(
          "arena", [](const BoundLayout& l) { return count_of(l.record.arena); },
          "Bytes of graph inputs and pool; None if missing in the file.")
      .def_prop_ro(
          "resident", [](const BoundLayout& l) { return count_of(l.record.resident); },
          "Bytes of the graph inputs, which are not laid out.")
      .def_prop_ro(
          "pool", [](const BoundLayout& l) { return count_of(l.record.pool); },
          "Bytes of the one allocation that holds all buffers.")
      .def_prop_ro(
          "peak", [](const BoundLayout& l) { return count_of(l.record.peak); },
          "Peak of the plan's live bytes.")
      .def_prop_ro(
          "arena_lower_bound", [](const BoundLayout& l) { return count_of(l.record.bound); },
          "Lower bound on every arena of this plan, in bytes.")
      .def_prop_ro(
          "status", [](const BoundLayout& l) { return l.record.status; }, "\"optimal\" or \"feasible\".")
      .def_prop_ro("graph_name", [](const BoundLayout& l) { return l.record.graph_name; })
      .def_prop_ro("graph_hash", [](const BoundLayout& l) { return l.record.graph_hash; })
      .def(
          "save",
          [](const BoundLayout& l, const std::filesystem::path& path) { save_layout(l.record, path); },
          nb::arg("path"), nb::sig("def save(self, path: str | os.PathLike[str]) -> None"),
          "Writes a `remat.layout` file atomically. Raises RematError.")
      .def(
          "__eq__",
          [](const BoundLayout& a, const BoundLayout& b) {
            return format_layout(a.record) == format_layout(b.record);
          },
          nb::is_operator(), nb::sig("def __eq__(self, other: object, /) -> bool"))
      .def("__hash__",
           [](const BoundLayout& l) { return nb::hash(nb::str(format_layout(l.record).c_str())); })
      .def("__getstate__", [](const BoundLayout& l) { return format_layout(l.record); })
      .def("__setstate__",
           [](BoundLayout& l, const std::string& text) {
             new (&l) BoundLayout{parse_layout(text, "pickled layout")};
           })
      .def("__repr__", [](const BoundLayout& l) {
        const auto arena = count_of(l.record.arena);
        return nb::str("<remat.Layout of {!r}: {} buffers, arena {}>")
            .format(l.record.graph_name, l.record.buffers.size(), arena ? nb::cast(*arena) : nb::none());
      });
}

void bind_result(nb::module_& m) {
  using Result = BoundLayoutResult;
  nb::class_<Result>(m, "LayoutResult", "A layout within the capacity, if found, and what is proved.")
      .def_prop_ro(
          "status", [](const Result& r) { return std::string(to_string(r.result.status)); },
          "\"optimal\": no smaller arena exists; \"feasible\": a layout within the capacity, if there is "
          "one;\n\"infeasible\": proved that none exists; \"unknown\": none found, nothing proved.")
      .def_prop_ro(
          "stopped_by", [](const Result& r) { return std::string(to_string(r.result.stopped_by)); },
          "\"proof\", \"time\", \"work\", \"interrupted\" or \"target\".")
      .def_prop_ro(
          "layout",
          [](const Result& r) -> std::optional<BoundLayout> {
            if (!r.record || !r.found()) return std::nullopt;
            return BoundLayout{*r.record};
          },
          "The layout of a plan; None if none was found within the capacity, and for plain buffers.")
      .def_prop_ro(
          "offsets",
          [](const Result& r) -> std::optional<Int64Array> {
            if (!r.found()) return std::nullopt;
            std::vector<std::int64_t> offsets;
            for (Bytes offset : r.result.offsets) offsets.push_back(offset.count());
            return array_of<Int64Array>(std::move(offsets));
          },
          nb::rv_policy::reference,
          "Offset in the pool of every buffer: a read-only int64 array of shape (n,) in their given "
          "sequence, or None.")
      .def_prop_ro(
          "arena",
          [](const Result& r) -> std::optional<std::int64_t> {
            if (!r.found()) return std::nullopt;
            return (r.resident + r.result.arena).count();
          },
          "Bytes of graph inputs and pool, or None if none was found within the capacity.")
      .def_prop_ro(
          "best_arena", [](const Result& r) { return (r.resident + r.result.arena).count(); },
          "The smallest arena found, within the capacity or not.")
      .def_prop_ro(
          "live_peak", [](const Result& r) { return (r.resident + r.live_peak).count(); },
          "Peak of live bytes, with sizes rounded up to the alignment and graph inputs included.")
      .def_prop_ro(
          "arena_lower_bound", [](const Result& r) { return (r.resident + r.result.bound.arena).count(); },
          "Lower bound on every arena, in bytes.")
      .def_prop_ro(
          "arena_bound_argument", [](const Result& r) { return r.result.bound.argument; },
          "Origin of `arena_lower_bound`: \"live_peak\" or \"search\".")
      .def_prop_ro(
          "seconds", [](const Result& r) { return r.result.seconds; }, "Wall-clock seconds.")
      .def_prop_ro(
          "counters", [](const Result& r) { return dict_of(r.result.counters); },
          nb::sig("def counters(self) -> dict[str, int]"), "Counters of the search.")
      .def("__repr__", [](const Result& r) {
        return nb::str("<remat.LayoutResult: {}, {} buffers, best arena {}, lower bound {}>")
            .format(std::string(to_string(r.result.status)), r.problem.buffers.size(),
                    (r.resident + r.result.arena).count(), (r.resident + r.result.bound.arena).count());
      });
}

}  // namespace

void bind_layout(nb::module_& m) {
  bind_layout_class(m);
  bind_result(m);
  constexpr const char* kProgress =
      "progress: collections.abc.Callable[[str, float, int | None, int | None, bool], object] | None";
  static const std::string of_plan =
      std::string(
          "def layout(graph: Graph, plan: Plan, capacity: int | str | None, alignment: int, effort: "
          "Effort, ") +
      kProgress + ") -> LayoutResult";
  static const std::string of_buffers =
      std::string(
          "def layout_buffers(lower: collections.abc.Iterable[int], upper: "
          "collections.abc.Iterable[int], size: collections.abc.Iterable[int], capacity: int | str | "
          "None, alignment: int, effort: Effort, ") +
      kProgress + ") -> LayoutResult";
  m.def("layout", layout_plan, nb::arg("graph"), nb::arg("plan"), nb::arg("capacity").none(),
        nb::arg("alignment"), nb::arg("effort"), nb::arg("progress").none(), nb::sig(of_plan.c_str()),
        "See remat.layout.");
  m.def("layout_buffers", layout_buffers, nb::arg("lower"), nb::arg("upper"), nb::arg("size"),
        nb::arg("capacity").none(), nb::arg("alignment"), nb::arg("effort"), nb::arg("progress").none(),
        nb::sig(of_buffers.c_str()), "See remat.layout_buffers.");
  m.def("check_layout", check_layout, nb::arg("graph"), nb::arg("plan"), nb::arg("layout"),
        "Checks a layout by the plan's steps and its offsets alone: every buffer, every rule, and all "
        "its statements.\n"
        "Raises PlanError naming the first broken rule, the buffer and both numbers.");
  m.def(
      "load_layout",
      [](const std::filesystem::path& path) {
        BoundLayout layout{with_fault<PlanFault>([&] { return load_layout(path); })};
        warn(layout.record.warnings);
        return layout;
      },
      nb::arg("path"), nb::sig("def load_layout(path: str | os.PathLike[str]) -> Layout"),
      "Reads a `remat.layout` file; nothing is checked against a plan yet. Raises PlanError.");
}

}  // namespace remat::python
