// remat.sweep: overhead against memory.
#include "remat/sweep.h"

#include "bindings.h"
#include "effort.h"
#include "planner_thread.h"
#include "planning.h"
#include "remat/report.h"

namespace remat::python {
namespace {

BoundSweep sweep(const Question& question, int points, const std::string& planner, const Effort& effort,
                 nb::handle progress, const std::vector<std::int64_t>& around) {
  const Problem& asked = question.request.problem;
  const Graph& graph = *asked.graph;
  SweepOptions options{planner, asked.order, points, effort.options, asked.host};
  for (const std::int64_t budget : around) options.around.emplace_back(budget);
  find_planner(planner);
  BoundSweep outcome{planner, options.order, graph.base_duration, {}, {}};
  PlannerThread thread;
  effort.apply(thread.limits());
  PlanStore own;  // with a work limit, plans must not depend on earlier calls
  PlanStore& store = effort.work_limit ? own : plan_store();
  thread.run([&] { outcome.result = remat::sweep(graph, options, thread.limits(), store); }, progress);
  for (const SweepPoint& point : outcome.result.points) {
    Problem problem{&graph, point.budget, options.order};
    problem.host = options.host;
    outcome.points.push_back({point.budget, make_record(problem, point.result, effort.options.seed),
                              point.result.duration_bound, point.knee});
  }
  return outcome;
}

nb::dict dict_of_point(const BoundPoint& p) {
  nb::dict row;
  row["budget"] = p.budget;
  row["peak"] = p.record.peak;
  row["overhead"] = p.record.overhead;
  row["duration"] = p.record.duration;
  row["duration_lower_bound"] = p.duration_bound.duration;
  row["status"] = p.record.status;
  row["planner"] = p.record.planner;
  row["knee"] = p.knee;
  return row;
}

nb::object frame_of(const BoundSweep& sweep) {
  nb::list rows;
  for (const BoundPoint& point : sweep.points) rows.append(dict_of_point(point));
  return nb::module_::import_("remat.tables").attr("frame_of")(rows);
}

nb::str repr_of_sweep(const BoundSweep& sweep) {
  const std::string least =
      sweep.points.empty() ? "" : ", overhead up to " + percent_text(sweep.points.back().record.overhead);
  return nb::str("<remat.SweepResult by {}: {} points, budgets {} down to {}{}>")
      .format(sweep.planner, sweep.points.size(), sweep.result.keep_all_peak.count(),
              sweep.points.empty() ? sweep.result.smallest_peak.count() : sweep.points.back().budget.count(),
              least);
}

void bind_point(nb::module_& m) {
  nb::class_<BoundPoint> point(m, "SweepPoint", "The best plan known at one budget.");
  point.def_ro("budget", &BoundPoint::budget, "Bytes.")
      .def_prop_ro("peak", of(&BoundPoint::record, &PlanRecord::peak), "Of `plan`, in bytes.")
      .def_prop_ro("duration", of(&BoundPoint::record, &PlanRecord::duration),
                   "Of `plan`, in the graph's time unit.")
      .def_prop_ro("overhead", of(&BoundPoint::record, &PlanRecord::overhead),
                   "Extra duration as a fraction of running every op once.")
      .def_prop_ro("duration_lower_bound", of(&BoundPoint::duration_bound, &DurationBound::duration),
                   "Lower bound on the duration of every plan within the budget.")
      .def_prop_ro("status", of(&BoundPoint::record, &PlanRecord::status), "As in PlanResult.")
      .def_prop_ro("planner", of(&BoundPoint::record, &PlanRecord::planner),
                   "The planner called last at this budget.")
      .def_ro("knee", &BoundPoint::knee, "True at the point farthest below the chord of the curve.")
      .def_prop_ro("plan", of(&BoundPoint::record), "The plan itself.")
      .def("__repr__",
           [](const BoundPoint& p) {
             return nb::str("<remat.SweepPoint: budget {}, overhead {}, {}>")
                 .format(p.budget.count(), percent_text(p.record.overhead), p.record.status);
           })
      .def("to_dict", dict_of_point, nb::sig("def to_dict(self) -> dict[str, typing.Any]"),
           "Everything but the plan, by name.");
  def_state<BoundPoint>(point, nullptr, &BoundPoint::budget, &BoundPoint::record, &BoundPoint::duration_bound,
                        &BoundPoint::knee);
}

}  // namespace

void bind_sweep(nb::module_& m) {
  bind_point(m);
  nb::class_<BoundSweep> swept(m, "SweepResult",
                               "Overhead against memory; overhead never falls along `points`.");
  swept.def_ro("planner", &BoundSweep::planner, "The planner that was requested.")
      .def_ro("order", &BoundSweep::order, "\"fixed\" or \"free\".")
      .def_prop_ro("points", of(&BoundSweep::points), "By falling budget, as a list.")
      .def_prop_ro("keep_all_peak", of(&BoundSweep::result, &SweepResult::keep_all_peak))
      .def_prop_ro("smallest_peak", of(&BoundSweep::result, &SweepResult::smallest_peak),
                   "Least peak of any plan found, in bytes.")
      .def_prop_ro("peak_lower_bound", of(&BoundSweep::result, &SweepResult::peak_bound, &PeakBound::peak),
                   "Lower bound on the peak of every plan in this order, in bytes.")
      .def_prop_ro("stopped_by", of(&BoundSweep::result, &SweepResult::stopped_by),
                   "\"time\", \"work\" or \"interrupted\"; None if the sweep finished.")
      .def_prop_ro("seconds", of(&BoundSweep::result, &SweepResult::seconds),
                   "Wall-clock seconds of the sweep.")
      .def(
          "_repr_html_", [](const BoundSweep& s) { return notebook_html(s.result, s.base_duration); },
          "For notebooks.")
      .def("__len__", [](const BoundSweep& s) { return s.points.size(); })
      .def(
          "__iter__", [](const BoundSweep& s) { return nb::iter(nb::cast(s.points)); },
          nb::sig("def __iter__(self) -> collections.abc.Iterator[SweepPoint]"))
      .def(
          "__getitem__",
          [](const BoundSweep& s, std::int64_t index) { return nb::object(nb::cast(s.points)[index]); },
          nb::sig("def __getitem__(self, index: int, /) -> SweepPoint"), "A point, by falling budget.")
      .def("to_pandas", frame_of, nb::sig("def to_pandas(self) -> typing.Any"),
           "A pandas DataFrame with a row for each point, `to_dict` of it. Raises RematError without pandas.")
      .def("__repr__", repr_of_sweep);
  const auto finish = [](BoundSweep& s) {
    for (std::size_t i = 0; i < s.points.size(); ++i) {
      s.result.points[i].result.plan = recorded_plan(s.points[i].record);
    }
  };
  def_state<BoundSweep>(swept, finish, &BoundSweep::planner, &BoundSweep::order, &BoundSweep::base_duration,
                        &BoundSweep::result, &BoundSweep::points);
  m.def("sweep", sweep, nb::arg("question"), nb::arg("points"), nb::arg("planner"), nb::arg("effort"),
        nb::arg("progress").none(), nb::arg("around") = std::vector<std::int64_t>(),
        nb::sig("def sweep(question: Question, points: int, planner: str, effort: Effort, progress: "
                "collections.abc.Callable[[str, float, int | None, int | None, bool], object] | None, "
                "around: collections.abc.Sequence[int] = ...) -> SweepResult"),
        "See remat.sweep.");
}

}  // namespace remat::python
