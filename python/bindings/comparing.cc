// For remat.compare: the list of planners, and the plan of each one alone.
#include "bindings.h"
#include "effort.h"
#include "planning.h"

namespace remat::python {
namespace {

/// The planner's own plan, without the plan store of this process.
BoundResult plan_alone(const Question& question, const std::string& planner, const Effort& effort,
                       nb::handle progress) {
  return plan_by_name(with_effort(question, planner, effort), progress,
                      [](const Request& request, Limits& limits) { return answer(request, limits).result; });
}

/// A plan of another program. Throws PlanFault where it is not valid.
BoundResult judge(const Question& question, const std::string& name, const PlanRecord& plan,
                  const Effort& effort) {
  const Problem& asked = question.request.problem;
  const Plan given = checked_plan(*asked.graph, plan, asked.order);
  const auto judged = [&](const Request& request, Limits& limits) {
    const auto run = [&given](const Problem&, Limits&) {
      PlanResult result;
      result.plan = given;
      return result;
    };
    return make_plan_with(request.problem, name, run, limits);
  };
  return plan_with(with_effort(question, question.request.planner, effort), nb::none(), judged);
}

/// The ends of a range as Python numbers, or None.
nb::object end_of(const OptionInfo& option, bool is_high) {
  if (const auto* range = std::get_if<IntegerRange>(&option.range)) {
    return nb::int_(is_high ? range->high : range->low);
  }
  if (const auto* range = std::get_if<NumberRange>(&option.range)) {
    return nb::float_(is_high ? range->high : range->low);
  }
  return nb::none();
}

void bind_options(nb::module_& m) {
  nb::class_<OptionInfo>(m, "OptionInfo", "An option of a planner, for `options` of `plan`.")
      .def_ro("name", &OptionInfo::name)
      .def_prop_ro(
          "type", [](const OptionInfo& option) { return std::string(to_string(option.type)); },
          "\"integer\", \"number\", \"flag\", \"choice\" or \"text\".")
      .def_ro("default", &OptionInfo::default_value, "The default value, as text.")
      .def_prop_ro(
          "low", [](const OptionInfo& option) { return end_of(option, false); },
          nb::sig("def low(self) -> int | float | None"), "The smallest number; None for other types.")
      .def_prop_ro(
          "high", [](const OptionInfo& option) { return end_of(option, true); },
          nb::sig("def high(self) -> int | float | None"), "The largest number; None for other types.")
      .def_prop_ro("values", values_of,
                   "Valid values: \"[0, 1]\", \"on, off\", or the choices; empty for any text.")
      .def_ro("choices", &OptionInfo::choices, "The values of a choice; empty for other types.")
      .def_ro("unit", &OptionInfo::unit, "Unit of the value; empty for a pure number.")
      .def_ro("description", &OptionInfo::description)
      .def("__repr__", [](const OptionInfo& option) {
        return nb::str("<remat.OptionInfo {}: {}>").format(option.name, option.description);
      });
}

void bind_planners(nb::module_& m) {
  nb::class_<PlannerInfo>(m, "PlannerInfo", "A registered planner.")
      .def_ro("name", &PlannerInfo::name)
      .def_ro("description", &PlannerInfo::description)
      .def_ro("guarantee", &PlannerInfo::guarantee, "The planner's guarantee.")
      .def_ro("source", &PlannerInfo::source, "The paper, or \"Remat\".")
      .def_ro("options", &PlannerInfo::options, "The planner's options, for `options` of `plan`.")
      .def("__repr__", [](const PlannerInfo& p) {
        return nb::str("<remat.PlannerInfo {}: {}>").format(std::string(p.name), std::string(p.description));
      });
  m.def(
      "planners",
      [] {
        std::vector<PlannerInfo> all(planners().begin(), planners().end());
        return all;
      },
      "All planners: first those that `auto` runs, then the baselines.");
}

}  // namespace

void bind_comparing(nb::module_& m) {
  bind_options(m);
  bind_planners(m);
  m.def("plan_alone", plan_alone, nb::arg("question"), nb::arg("planner"), nb::arg("effort"),
        nb::arg("progress").none(),
        nb::sig("def plan_alone(question: Question, planner: str, effort: Effort, progress: "
                "collections.abc.Callable[[str, float, int | None, int | None, bool], object] | None"
                ") -> PlanResult"),
        "Plans without the plans that this process already knows; see remat.compare.");
  m.def("judge", judge, nb::arg("question"), nb::arg("name"), nb::arg("plan"), nb::arg("effort"),
        nb::sig("def judge(question: Question, name: str, plan: Plan, effort: Effort) -> PlanResult"),
        "Makes a plan of another program the result of a planner of that name; see remat.compare.");
  m.def(
      "unsupported",
      [](const Question& question, const std::string& planner) {
        return find_planner(planner).supports(question.request.problem);
      },
      nb::arg("question"), nb::arg("planner"),
      "The reason why a planner does not support a problem, or None.");
}

}  // namespace remat::python
