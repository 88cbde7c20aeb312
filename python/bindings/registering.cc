// Planners that are Python functions: see remat/registering.py.
#include <algorithm>
#include <map>
#include <set>

#include "bindings.h"
#include "errors.h"
#include "planning.h"

namespace remat::python {
namespace {

/// `remat.PlannerProblem`: the problem for a planner in Python. `limits` is null after its call has ended.
struct AskedOfPlanner {
  nb::object graph;
  std::optional<std::int64_t> budget;
  std::string order, objective;
  std::int64_t seed = 0;
  std::map<std::string, std::string> options;
  Limits* limits = nullptr;

  bool spend(std::int64_t units) {
    if (!limits) throw UsageError("spend: the call of the planner has ended");
    return limits->spend(std::max<std::int64_t>(1, units));
  }
};

AskedOfPlanner asked(const Problem& problem) {
  return {.graph = nb::cast(Graph(*problem.graph)),
          .budget = problem.budget == kNoBudget ? std::nullopt : std::optional(problem.budget.count()),
          .order = std::string(to_string(problem.order)),
          .objective = std::string(to_string(problem.objective)),
          .options = {}};
}

/// Calls a function of remat/registering.py, which holds the users' functions: Python objects kept here would
/// outlive the interpreter.
nb::object call(const char* function, const std::string& name, nb::handle problem) {
  return nb::module_::import_("remat.registering").attr(function)(name, problem);
}

PlanRecord record_of(const std::string& name, nb::handle answer) {
  if (nb::isinstance<PlanRecord>(answer)) return nb::cast<const PlanRecord&>(answer);
  PlanRecord record;
  record.steps = with_fault<PlanFault>([&] { return to_integers(answer, "planner '" + name + "': steps"); });
  return record;
}

PlanResult run(const std::string& name, const Problem& problem, const PlanOptions& options, Limits& limits) {
  const nb::gil_scoped_acquire gil;
  const nb::object object = nb::cast(asked(problem));
  auto& given = nb::cast<AskedOfPlanner&>(object);
  given.seed = static_cast<std::int64_t>(options.seed & 0x7fffffffffffffff);
  given.options = options.set;
  given.limits = &limits;
  struct End {
    Limits** limits;
    ~End() { *limits = nullptr; }
  } end{&given.limits};
  const nb::object answer = call("ask", name, object);
  PlanResult result;
  if (answer.is_none()) return result;
  const PlanRecord record = record_of(name, answer);
  if (auto violation = validate(*problem.graph, record.steps, problem.order, std::nullopt, record.copies)) {
    violation->message = "planner '" + name + "': " + violation->message;
    throw PlanFault(*violation);
  }
  result.plan = recorded_plan(record);
  return result;
}

std::optional<std::string> supports(const std::string& name, const Problem& problem) {
  const nb::gil_scoped_acquire gil;
  return nb::cast<std::optional<std::string>>(call("why_not", name, nb::cast(asked(problem))));
}

/// Names of planners registered from Python.
std::set<std::string>& names() {
  static std::set<std::string> names;
  return names;
}

void register_named(const std::string& name, const std::string& description, const std::string& guarantee,
                    const std::string& source) {
  const auto run_named = [name](const Problem& problem, const PlanOptions& options, Limits& limits) {
    return run(name, problem, options, limits);
  };
  register_planner({.name = name,
                    .description = description,
                    .guarantee = guarantee,
                    .source = source,
                    .supports = [name](const Problem& problem) { return supports(name, problem); },
                    .run = run_named,
                    .takes_any_option = true});
  names().insert(name);
}

}  // namespace

bool is_in_python(const std::string& planner) { return names().contains(planner); }

void bind_registering(nb::module_& m) {
  nb::class_<AskedOfPlanner>(m, "PlannerProblem",
                             "The problem given to a planner in Python; see remat.register_planner.")
      .def_prop_ro("graph", of(&AskedOfPlanner::graph), nb::sig("def graph(self) -> Graph"))
      .def_ro("budget", &AskedOfPlanner::budget, "Bytes, or None where there is none.")
      .def_ro("order", &AskedOfPlanner::order, "\"fixed\" or \"free\".")
      .def_ro("objective", &AskedOfPlanner::objective, "\"time\" or \"peak\".")
      .def_ro("seed", &AskedOfPlanner::seed)
      .def_prop_ro(
          "options",
          [](const AskedOfPlanner& p) {
            nb::dict options;
            for (const auto& [key, value] : p.options) options[key.c_str()] = value;
            return options;
          },
          nb::sig("def options(self) -> dict[str, str]"), "The call's options, as texts.")
      .def("spend", &AskedOfPlanner::spend, nb::arg("units") = 1,
           "Counts work, in units of some hundred nanoseconds. True if a limit is reached or Ctrl-C was\n"
           "pressed: then return the best plan so far.");
  m.def("register_planner", register_named, nb::arg("name"), nb::arg("description"), nb::arg("guarantee"),
        nb::arg("source"), "See remat.register_planner.");
}

}  // namespace remat::python
