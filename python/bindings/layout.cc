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

BoundLayoutResult layout_plan(const Graph& graph, const PlanRecord& plan, nb::handle capacity,
                              std::int64_t alignment, const Effort& effort, nb::handle progress) {
  const Plan steps = checked_plan(graph, plan, OrderMode::kFree);
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
void check_layout(const Graph& graph, const PlanRecord& plan, const LayoutRecord& layout) {
  nb::gil_scoped_release release;
  const Plan steps = checked_plan(graph, plan, OrderMode::kFree);
  const std::vector<std::string> differences = check_layout_record(graph, steps, layout);
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
      .def_ro("bytes", &LayoutEntry::bytes)
      .def_ro("offset", &LayoutEntry::offset, "Offset in the pool in bytes.")
      .def("__repr__", [](const LayoutEntry& e) {
        return nb::str("<remat.LayoutBuffer: value {}, steps [{}, {}), bytes [{}, {})>")
            .format(e.value, e.first, e.end, e.offset, e.offset + e.bytes);
      });
  nb::class_<LayoutRecord> layout(m, "Layout", "The offsets of a plan's buffers in one pool; never changes.");
  layout
      .def_prop_ro("buffers", of(&LayoutRecord::buffers),
                   "Instances by the step that makes them, then workspaces; without empty ones.")
      .def_ro("alignment", &LayoutRecord::alignment, "Every offset is a multiple of this.")
      .def_ro("arena", &LayoutRecord::arena, "Bytes of graph inputs and pool; None if missing in the file.")
      .def_ro("resident", &LayoutRecord::resident, "Bytes of the graph inputs, which are not laid out.")
      .def_ro("pool", &LayoutRecord::pool, "Bytes of the one allocation that holds all buffers.")
      .def_ro("peak", &LayoutRecord::peak, "Peak of the plan's live bytes.")
      .def_ro("arena_lower_bound", &LayoutRecord::bound, "Lower bound on every arena of this plan, in bytes.")
      .def_ro("status", &LayoutRecord::status, "\"optimal\" or \"feasible\".")
      .def_ro("graph_name", &LayoutRecord::graph_name)
      .def_ro("graph_hash", &LayoutRecord::graph_hash)
      .def("__repr__", [](const LayoutRecord& l) {
        return nb::str("<remat.Layout of {!r}: {} buffers, arena {}>")
            .format(l.graph_name, l.buffers.size(), l.arena);
      });
  def_file<LayoutRecord>(
      layout, format_layout, [](const std::string& text) { return parse_layout(text, "pickled layout"); },
      save_layout, "Writes a `remat.layout` file atomically. Raises RematError.");
}

void bind_result(nb::module_& m) {
  using Result = BoundLayoutResult;
  nb::class_<Result>(m, "LayoutResult", "A layout within the capacity, if found, and what is proved.")
      .def_prop_ro(
          "status", of(&Result::result, &LayoutResult::status),
          "\"optimal\": no smaller arena exists; \"feasible\": a layout within the capacity, if there is "
          "one;\n\"infeasible\": proved that none exists; \"unknown\": none found, nothing proved.")
      .def_prop_ro("stopped_by", of(&Result::result, &LayoutResult::stopped_by),
                   "\"proof\", \"time\", \"work\", \"interrupted\" or \"target\".")
      .def_prop_ro(
          "layout",
          [](const Result& r) -> std::optional<LayoutRecord> {
            if (!r.record || !r.found()) return std::nullopt;
            return r.record;
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
          [](const Result& r) -> std::optional<Bytes> {
            if (!r.found()) return std::nullopt;
            return r.resident + r.result.arena;
          },
          "Bytes of graph inputs and pool, or None if none was found within the capacity.")
      .def_prop_ro(
          "best_arena", [](const Result& r) { return r.resident + r.result.arena; },
          "The smallest arena found, within the capacity or not.")
      .def_prop_ro(
          "live_peak", [](const Result& r) { return r.resident + r.live_peak; },
          "Peak of live bytes, with sizes rounded up to the alignment and graph inputs included.")
      .def_prop_ro(
          "arena_lower_bound", [](const Result& r) { return r.resident + r.result.bound.arena; },
          "Lower bound on every arena, in bytes.")
      .def_prop_ro("arena_bound_argument", of(&Result::result, &LayoutResult::bound, &LayoutBound::argument),
                   "Origin of `arena_lower_bound`: \"live_peak\" or \"search\".")
      .def_prop_ro("seconds", of(&Result::result, &LayoutResult::seconds), "Wall-clock seconds.")
      .def_prop_ro(
          "counters", [](const Result& r) { return dict_of(r.result.counters); },
          nb::sig("def counters(self) -> dict[str, int]"), "Counters of the search.")
      .def("__repr__", [](const Result& r) {
        return nb::str("<remat.LayoutResult: {}, {} buffers, best arena {}, lower bound {}>")
            .format(r.result.status, r.problem.buffers.size(), r.resident + r.result.arena,
                    r.resident + r.result.bound.arena);
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
        LayoutRecord layout = with_fault<PlanFault>([&] { return load_layout(path); });
        warn(layout.warnings);
        return layout;
      },
      nb::arg("path"), nb::sig("def load_layout(path: str | os.PathLike[str]) -> Layout"),
      "Reads a `remat.layout` file; nothing is checked against a plan yet. Raises PlanError.");
}

}  // namespace remat::python
