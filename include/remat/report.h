// What plans do to memory: a page for people, and files that other programs' viewers open. docs/report.md.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "remat/allocator.h"
#include "remat/export.h"
#include "remat/graph.h"
#include "remat/io.h"
#include "remat/plan.h"
#include "remat/sweep.h"

namespace REMAT_API remat {

/// What memory is used for at a step. Their sum is the step's memory.
enum class MemoryKind : std::uint8_t {
  kParameters,   ///< graph inputs whose names begin with "parameter" or "buffer"
  kInputs,       ///< all other graph inputs
  kOutputs,      ///< kept to the end: gradients of parameters, the loss
  kActivations,  ///< made before the first backward op and still alive at it; everything where no op has a
                 ///< phase
  kRecomputed,   ///< made by a recomputation
  kGradients,    ///< made from the first backward op on, and dropped again
  kShortLived,   ///< made before the first backward op and gone by then
  kCopied,       ///< until its copy to the host has ended, or since a copy back
  kWorkspace,    ///< of the op that runs
};
inline constexpr std::size_t kMemoryKinds = 9;
/// For people: "activations kept".
std::string_view to_string(MemoryKind kind);

/// One instance and what it is for.
struct KindOfLife {
  InstanceLife life;
  MemoryKind kind;
  friend bool operator==(const KindOfLife&, const KindOfLife&) = default;
};
/// `instance_lives` with their kinds, by first step. Of an input and the output in its place the smaller one
/// is left out of the step that both live in, so that the bytes of lives and workspaces are the step's
/// memory.
std::vector<KindOfLife> kinds_of_lives(const Graph& graph, const Plan& plan);

/// Bytes of each step by kind; the sums are those of `simulate`.
using KindSums = std::array<Bytes, kMemoryKinds>;
IndexVector<StepId, KindSums> memory_by_kind(const Graph& graph, const Plan& plan);

/// A plan under the name that a reader knows it by.
struct ReportPlan {
  std::string title;
  PlanRecord record;
  std::vector<Bytes> measured = {};  ///< the most at each step when it really ran; empty where it did not
};

/// A curve of overhead against memory under the name of its planner.
struct ReportCurve {
  std::string planner;
  OrderMode order = OrderMode::kFixed;
  SweepResult sweep;
};

/// What a report is made of. The graph must outlive it.
struct ReportContent {
  const Graph* graph = nullptr;
  std::vector<ReportPlan> plans;    ///< keep-all is always there, behind them
  std::vector<ReportCurve> curves;  ///< the first with its bound, the others to compare with
  std::string command;              ///< that made it, to be shown
  /// Where it is set, what it takes for each plan is told too (html and json).
  std::optional<AllocatorConfig> allocator = std::nullopt;
};

/// Html: one page that needs nothing else. Json: the same numbers. Csv: a row for each step. Dot: a node
/// for each step, for Graphviz. Perfetto: counters and slices in the trace event format. MemoryViz: a
/// snapshot as PyTorch's allocator writes it.
enum class ReportFormat { kHtml, kJson, kCsv, kDot, kPerfetto, kMemoryViz };
std::string_view to_string(ReportFormat format);
/// Throws UsageError with the known names.
ReportFormat parse_report_format(std::string_view name);

/// Throws InputError, naming the plan, for one that is not of this graph, breaks a rule or misstates its
/// costs, has copies and does not say how fast they are, or was measured at another number of steps. Asked
/// before a long run; a plan may be over its budget.
void check_report(const ReportContent& content);

/// The whole file. Csv, Dot and MemoryViz show the first plan (keep-all where there is none) and take no
/// second one. Throws InputError, naming the plan, for one that is not of this graph, breaks a rule or
/// misstates its costs; UsageError for more plans than the format takes, and for copies, which Dot does not
/// show. A plan may be over its budget.
std::string format_report(const ReportContent& content, ReportFormat format);

/// A cell of a notebook: facts and a picture (SVG) in one block, without a script. Of a graph: memory by step
/// when everything is kept.
std::string notebook_html(const Graph& graph);
/// Of a plan: what its record says.
std::string notebook_html(const PlanRecord& plan);
/// With memory by step. The steps must be valid for the graph.
std::string notebook_html(const Graph& graph, const PlanRecord& plan);
/// Of a curve: overhead over `base`, the duration of every op once; `beside` is added to all amounts of
/// memory.
std::string notebook_html(const SweepResult& sweep, Duration base, Bytes beside = Bytes());

}  // namespace REMAT_API remat
