// Files and budgets.
#include <nanobind/stl/filesystem.h>

#include "bindings.h"
#include "errors.h"

namespace remat::python {
namespace {

Graph load_graph_file(const std::filesystem::path& path) {
  LoadedGraph loaded = with_fault<GraphFault>([&] {
    nb::gil_scoped_release release;
    return load_graph(path);
  });
  warn(loaded.warnings);
  return std::move(loaded.graph);
}

PlanRecord load_plan_file(const std::filesystem::path& path) {
  PlanRecord plan = with_fault<PlanFault>([&] { return load_plan(path); });
  warn(plan.warnings);
  return plan;
}

std::int64_t parse_bytes(nb::handle budget, std::optional<std::int64_t> keep_all,
                         std::optional<std::int64_t> floor) {
  if (budget.is_none()) throw BudgetFault("budget must be an integer or a str, not None");
  const bool percent =
      nb::isinstance<nb::str>(budget) && nb::cast<std::string>(budget).find('%') != std::string::npos;
  if (percent && !keep_all) {
    throw BudgetFault("budget '" + nb::cast<std::string>(budget) +
                      "' needs keep_all_peak, which it is a share of");
  }
  return parse_budget_object(budget, Bytes(keep_all.value_or(0)), Bytes(floor.value_or(0)))->count();
}

}  // namespace

void bind_files(nb::module_& m) {
  m.def("load_graph", load_graph_file, nb::arg("path"),
        nb::sig("def load_graph(path: str | os.PathLike[str]) -> Graph"),
        "Reads a `remat.graph` or node-link file, told apart by content. Raises GraphError "
        "naming\n"
        "file, line and column; warnings come as UserWarning.");
  m.def("load_plan", load_plan_file, nb::arg("path"),
        nb::sig("def load_plan(path: str | os.PathLike[str]) -> Plan"),
        "Reads a `remat.plan` file. Its statements are not checked against a graph: see `check`. "
        "Raises PlanError.");
  m.def("parse_bytes", parse_bytes, nb::arg("budget"), nb::arg("keep_all_peak") = nb::none(),
        nb::arg("floor") = nb::none(),
        nb::sig("def parse_bytes(budget: int | str, keep_all_peak: int | None = None, floor: int | None = "
                "None) -> int"),
        "Bytes of \"6442450944\", \"6GiB\", \"800MB\" or, with `keep_all_peak` in bytes, \"75%\". With the\n"
        "`floor` of a graph, a number as text far below it (\"70\" for \"70%\") is an error. Raises "
        "BudgetError.");
  m.def(
      "parse_gap", [](const std::string& text) { return parse_gap(text); }, nb::arg("gap"),
      "Parses a share such as \"0.1%\". Raises UsageError.");
  m.def(
      "describe_budget",
      [](const std::string& asked, std::int64_t bytes) { return describe_budget(asked, Bytes(bytes)); },
      nb::arg("asked"), nb::arg("bytes"),
      "A budget in readable form: the requested share, if it was one, and bytes.");
  m.def(
      "format_bytes", [](std::int64_t bytes) { return format_bytes(Bytes(bytes)); }, nb::arg("bytes"),
      "An amount of memory in readable form, with three digits: \"3.56 GiB\".");
}

}  // namespace remat::python
