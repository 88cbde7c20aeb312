// remat.report: plans and curves as a page, and as files for other viewers.
#include "remat/report.h"

#include <nanobind/stl/filesystem.h>
#include <nanobind/stl/map.h>

#include <algorithm>

#include "bindings.h"
#include "errors.h"
#include "planning.h"

namespace remat::python {
namespace {

/// `remat.Report`.
struct BoundReport {
  ReportFormat format = ReportFormat::kHtml;
  std::string content;
};

using Titled = std::vector<std::pair<std::string, PlanRecord>>;
/// By title; a mapping of Python.
using Measured = std::map<std::string, std::vector<std::int64_t>>;

ReportContent content_of(const Graph& graph, const Titled& plans, const Measured& measured) {
  ReportContent content;
  content.graph = &graph;
  for (const auto& [title, plan] : plans) content.plans.push_back({title, plan});
  for (const auto& [title, amounts] : measured) {
    const auto plan =
        std::find_if(content.plans.begin(), content.plans.end(),
                     [&title = title](const ReportPlan& shown) { return shown.title == title; });
    if (plan == content.plans.end()) throw UsageError("no plan is named '" + title + "', which was measured");
    for (std::int64_t bytes : amounts) {
      if (bytes < 0) throw InputError(title + ": a measured amount is negative: " + std::to_string(bytes));
      plan->measured.emplace_back(bytes);
    }
  }
  return content;
}

BoundReport report(const Graph& graph, const Titled& plans, const std::vector<BoundSweep*>& sweeps,
                   const std::string& format, const Measured& measured,
                   const std::optional<std::string>& allocator) {
  ReportContent content = content_of(graph, plans, measured);
  if (allocator) content.allocator = parse_allocator(*allocator);
  for (const BoundSweep* sweep : sweeps) {
    content.curves.push_back({sweep->planner, sweep->order, sweep->result});
  }
  content.command = "remat.report";
  const ReportFormat wanted = parse_report_format(format);
  return with_fault<PlanFault>([&] {
    nb::gil_scoped_release release;
    return BoundReport{wanted, format_report(content, wanted)};
  });
}

void check(const Graph& graph, const Titled& plans, const Measured& measured) {
  const ReportContent content = content_of(graph, plans, measured);
  with_fault<PlanFault>([&] { check_report(content); });
}

/// The page in an iframe.
std::optional<std::string> in_notebook(const BoundReport& report) {
  if (report.format != ReportFormat::kHtml) return std::nullopt;
  std::string text =
      "<iframe title=\"Remat\" style=\"width:100%;height:720px;border:1px solid #8888\" srcdoc=\"";
  for (char c : report.content) {
    if (c == '&') {
      text += "&amp;";
    } else if (c == '"') {
      text += "&quot;";
    } else {
      text += c;
    }
  }
  return text + "\"></iframe>";
}

}  // namespace

void bind_report(nb::module_& m) {
  nb::class_<BoundReport>(m, "Report", "A report in one of its formats; see remat.report.")
      .def_ro("format", &BoundReport::format,
              "\"html\", \"json\", \"csv\", \"dot\", \"perfetto\" or \"memory_viz\".")
      .def_prop_ro(
          "content", [](const BoundReport& r) { return nb::bytes(r.content.data(), r.content.size()); },
          "The content of the file.")
      .def(
          "save",
          [](const BoundReport& r, const std::filesystem::path& path) { write_file(path, r.content); },
          nb::arg("path"), nb::sig("def save(self, path: str | os.PathLike[str]) -> None"),
          "Writes the file atomically. Raises RematError.")
      .def("_repr_html_", in_notebook, "For notebooks: the page in a frame; None for other formats.")
      .def("__repr__", [](const BoundReport& r) {
        return nb::str("<remat.Report: {}, {} bytes>").format(r.format, r.content.size());
      });
  m.def("report", report, nb::arg("graph"), nb::arg("plans"), nb::arg("sweeps"), nb::arg("format"),
        nb::arg("measured"), nb::arg("allocator").none(),
        nb::sig("def report(graph: Graph, plans: collections.abc.Sequence[tuple[str, Plan]], sweeps: "
                "collections.abc.Sequence[SweepResult], format: str, measured: dict[str, list[int]], "
                "allocator: str | None) -> Report"),
        "See remat.report.");
  m.def("check_report", check, nb::arg("graph"), nb::arg("plans"), nb::arg("measured"),
        nb::sig("def check_report(graph: Graph, plans: collections.abc.Sequence[tuple[str, Plan]], measured: "
                "dict[str, list[int]]) -> None"),
        "Raises PlanError for a plan that `report` would refuse. For a check before a long run.");
  m.def(
      "plan_html",
      [](const Graph& graph, const PlanRecord& plan) {
        checked_plan(graph, plan, OrderMode::kFree);
        return notebook_html(graph, plan);
      },
      nb::arg("graph"), nb::arg("plan"), "A plan with its memory by step, for notebooks. Raises PlanError.");
  m.def(
      "sweep_html",
      [](const BoundSweep& sweep, std::int64_t beside) {
        return notebook_html(sweep.result, sweep.base_duration, Bytes(beside));
      },
      nb::arg("sweep"), nb::arg("beside"),
      "A curve for notebooks, with `beside` bytes added to the graph's.");
}

}  // namespace remat::python
