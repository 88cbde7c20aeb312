#include "remat/report.h"

#include "remat/bounds.h"
#include "remat/error.h"
#include "remat/words.h"
#include "report/plans.h"

namespace remat {
namespace {

constexpr std::array kFormats{ReportFormat::kHtml, ReportFormat::kJson,     ReportFormat::kCsv,
                              ReportFormat::kDot,  ReportFormat::kPerfetto, ReportFormat::kMemoryViz};

/// The first wrong statement of a record; being over its budget is shown, not refused.
std::optional<std::string> first_difference(const Graph& graph, PlanRecord record) {
  record.budget.reset();
  record.status.clear();
  const std::vector<std::string> lines = check_record(graph, record);
  return lines.empty() ? std::nullopt : std::optional(lines.front());
}

PlanRecord keep_all_record(const Graph& graph) {
  PlanRecord record;
  record.planner = "keep_all";
  record.status = to_string(Status::kOptimal);
  for (OpId op : graph.ops()) record.steps.push_back(op.index());
  return record;
}

}  // namespace

namespace report {

ShownPlans::ShownPlans(const ReportContent& content) : keep_all_(keep_all_record(*content.graph)) {
  plans_.reserve(content.plans.size() + 1);
  for (const ReportPlan& plan : content.plans) {
    add(*content.graph, plan.title, plan.record, plan.measured);
  }
  add(*content.graph, "keep all", keep_all_, {});
}

void ShownPlans::add(const Graph& graph, const std::string& title, const PlanRecord& record,
                     std::span<const Bytes> measured) {
  if (const auto difference = first_difference(graph, record)) throw InputError(title + ": " + *difference);
  if (!record.copies.empty() && !record.host) {
    throw InputError(title + ": the plan has copies and does not say how fast the host is (\"machine\")");
  }
  if (!record.copies.empty()) require_time_unit(graph);
  if (!measured.empty() && measured.size() != record.steps.size()) {
    throw InputError(title + ": " + std::to_string(measured.size()) + " steps were measured of " +
                     std::to_string(record.steps.size()));
  }
  Shown shown;
  shown.title = title;
  shown.record = &record;
  shown.measured = measured;
  shown.plan = recorded_plan(record);
  if (!record.copies.empty()) shown.host = &*record.host;
  shown.cost = simulate(graph, shown.plan, shown.host);
  shown.peak_bound = shown.host ? host_peak_bound(graph) : best_peak_bound(graph, record.order);
  if (record.peak_bound && *record.peak_bound > shown.peak_bound.peak) {
    shown.peak_bound = {"of the plan's file", *record.peak_bound, OpId()};
  }
  shown.duration_bound = {"base", graph.base_duration};
  if (!shown.host && record.budget && *record.budget >= shown.cost.peak) {
    shown.duration_bound = cheap_duration_bound(graph, *record.budget, record.order);
  }
  if (record.duration_bound && *record.duration_bound > shown.duration_bound.duration) {
    shown.duration_bound = {"of the plan's file", *record.duration_bound};
  }
  plans_.push_back(std::move(shown));
}

const Shown& ShownPlans::only(ReportFormat format) const {
  if (plans_.size() > 2) {
    throw UsageError("the format " + std::string(to_string(format)) + " shows one plan, not " +
                     std::to_string(plans_.size() - 1));
  }
  return plans_.front();
}

}  // namespace report

std::string_view to_string(ReportFormat format) {
  switch (format) {
    case ReportFormat::kHtml:
      return "html";
    case ReportFormat::kJson:
      return "json";
    case ReportFormat::kCsv:
      return "csv";
    case ReportFormat::kDot:
      return "dot";
    case ReportFormat::kPerfetto:
      return "perfetto";
    case ReportFormat::kMemoryViz:
      return "memory_viz";
  }
  return "";
}

ReportFormat parse_report_format(std::string_view name) {
  std::vector<std::string> known;
  for (ReportFormat format : kFormats) {
    if (name == to_string(format)) return format;
    known.emplace_back(to_string(format));
  }
  throw UsageError(unknown_word("format", name, known));
}

void check_report(const ReportContent& content) { report::ShownPlans{content}; }

std::string format_report(const ReportContent& content, ReportFormat format) {
  const report::ShownPlans plans(content);
  switch (format) {
    case ReportFormat::kHtml:
      return report::page_text(content, plans);
    case ReportFormat::kJson:
      return report::json_text(content, plans, false);
    case ReportFormat::kCsv:
      return report::csv_text(*content.graph, plans.only(format));
    case ReportFormat::kDot:
      return report::dot_text(*content.graph, plans.only(format));
    case ReportFormat::kPerfetto:
      return report::perfetto_text(*content.graph, plans);
    case ReportFormat::kMemoryViz:
      return report::memory_viz_text(*content.graph, plans.only(format));
  }
  return "";
}

}  // namespace remat
