// The checked plans of a report, the input of all formats.
#pragma once

#include <span>
#include <vector>

#include "remat/report.h"

namespace remat::report {

/// A checked plan of the graph with its cost and bounds.
struct Shown {
  std::string title;
  const PlanRecord* record = nullptr;
  std::span<const Bytes> measured;  ///< as of `ReportPlan`
  Plan plan;
  const Host* host = nullptr;  ///< where the plan has copies
  Simulation cost;
  PeakBound peak_bound;
  DurationBound duration_bound;
};

/// The plans of a report and keep-all.
class ShownPlans {
 public:
  /// Throws InputError as `format_report` does.
  explicit ShownPlans(const ReportContent& content);
  const std::vector<Shown>& all() const { return plans_; }
  /// The plan to show in formats for one plan. Throws UsageError if there are two or more.
  const Shown& only(ReportFormat format) const;

 private:
  void add(const Graph& graph, const std::string& title, const PlanRecord& record,
           std::span<const Bytes> measured);

  PlanRecord keep_all_;
  std::vector<Shown> plans_;  ///< keep-all last
};

/// By its name, as `remat.torch` names graph inputs.
bool is_parameter(const Graph& graph, ValueId value);

/// The writers, one for each format.
std::string json_text(const ReportContent& content, const ShownPlans& plans, bool packed);
std::string page_text(const ReportContent& content, const ShownPlans& plans);
std::string csv_text(const Graph& graph, const Shown& shown);
std::string dot_text(const Graph& graph, const Shown& shown);
std::string perfetto_text(const Graph& graph, const ShownPlans& plans);
std::string memory_viz_text(const Graph& graph, const Shown& shown);

}  // namespace remat::report
