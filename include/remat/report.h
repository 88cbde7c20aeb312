// Reports on the memory of plans: an HTML page, and files for the viewers of other programs. docs/report.md.
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

/// What memory is used for. The sum over all kinds is the memory of a step.
enum class MemoryKind : std::uint8_t {
  kParameters,   ///< graph inputs whose names begin with "parameter" or "buffer"
  kInputs,       ///< all other graph inputs
  kOutputs,      ///< kept outputs: gradients of parameters, the loss
  kActivations,  ///< made before the first backward op and still alive at it; everything where no op has a
                 ///< phase
  kRecomputed,   ///< made by a recomputation
  kGradients,    ///< made from the first backward op on, not kept
  kShortLived,   ///< made before the first backward op, dropped before it
  kCopied,       ///< while copied out to the host, or since copied back
  kWorkspace,    ///< of the op that runs
};
inline constexpr std::size_t kMemoryKinds = 9;
/// For people: "activations kept".
std::string_view to_string(MemoryKind kind);

/// The live range of an instance, and its kind.
struct KindOfLife {
  InstanceLife life;
  MemoryKind kind;
  friend bool operator==(const KindOfLife&, const KindOfLife&) = default;
};
/// `instance_lives` with their kinds, by first step. If an output is written over an input, the smaller of
/// the two does not count at the step that both live in, so that live ranges and workspaces add up to the
/// step's memory.
std::vector<KindOfLife> kinds_of_lives(const Graph& graph, const Plan& plan);

/// Bytes of each step by kind; the sums are those of `simulate`.
using KindSums = std::array<Bytes, kMemoryKinds>;
IndexVector<StepId, KindSums> memory_by_kind(const Graph& graph, const Plan& plan);

/// A plan with the name to show.
struct ReportPlan {
  std::string title;
  PlanRecord record;
  std::vector<Bytes> measured = {};  ///< peak of each step in a real run; empty without one
};

/// A curve of overhead against memory, and the name of its planner.
struct ReportCurve {
  std::string planner;
  OrderMode order = OrderMode::kFixed;
  SweepResult sweep;
};

/// What a report is made of. The graph must outlive it.
struct ReportContent {
  const Graph* graph = nullptr;
  std::vector<ReportPlan> plans;    ///< keep-all is added to these
  std::vector<ReportCurve> curves;  ///< the first with its bound, the others to compare with
  std::string command;              ///< that made the report, for display
  /// If set, also reports what this allocator takes for each plan (html and json).
  std::optional<AllocatorConfig> allocator = std::nullopt;
};

/// Html: one page that needs nothing else. Json: the same numbers. Csv: a row for each step. Dot: a node
/// for each step, for Graphviz. Perfetto: counters and slices in the trace event format. MemoryViz: a
/// snapshot as PyTorch's allocator writes it.
enum class ReportFormat { kHtml, kJson, kCsv, kDot, kPerfetto, kMemoryViz };
std::string_view to_string(ReportFormat format);
/// Throws UsageError with the known names.
ReportFormat parse_report_format(std::string_view name);

/// Throws InputError, naming the plan, if it is of another graph, breaks a rule, misstates its costs, has
/// copies but no host, or was measured with another number of steps. For use before a long run. A plan may be
/// over its budget.
void check_report(const ReportContent& content);

/// The whole file. Csv, Dot and MemoryViz show the first plan (keep-all where there is none) and take no
/// second one. Throws InputError as `check_report` does; UsageError for more plans than the format takes, and
/// for copies in Dot. A plan may be over its budget.
std::string format_report(const ReportContent& content, ReportFormat format);

/// An HTML block for a notebook: facts and a picture (SVG), without a script. For a graph: memory by step
/// when everything is kept.
std::string notebook_html(const Graph& graph);
/// For a plan: the contents of its record.
std::string notebook_html(const PlanRecord& plan);
/// The same with memory by step. The steps must be valid for the graph.
std::string notebook_html(const Graph& graph, const PlanRecord& plan);
/// For a curve: overhead over `base`, the duration of every op once; `beside` is added to all amounts of
/// memory.
std::string notebook_html(const SweepResult& sweep, Duration base, Bytes beside = Bytes());

}  // namespace REMAT_API remat
