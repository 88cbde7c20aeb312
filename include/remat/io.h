// Files: graphs and plans in and out. Formats: docs/formats.md.
#pragma once

#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "remat/export.h"
#include "remat/graph.h"
#include "remat/planner.h"

namespace REMAT_API remat {

enum class GraphFormat { kRematGraph, kNodeLink };
std::string_view to_string(GraphFormat format);

/// A graph with the warnings of its reader.
struct LoadedGraph {
  Graph graph;
  GraphFormat format = GraphFormat::kRematGraph;
  std::vector<std::string> warnings;  ///< one line each: unknown keys, ...
};

/// Reads a graph file; the format is detected by content. Throws InputError naming file, line and column
/// (or op and value) and both numbers.
LoadedGraph load_graph(const std::filesystem::path& path);
/// The same from text in memory; messages name `place` in place of a file.
LoadedGraph parse_graph(std::string_view text, std::string_view place);

/// Atomic (written beside, then renamed): leaves either the new file or the old one. Throws InputError.
void save_graph(const Graph& graph, const std::filesystem::path& path);
std::string format_graph(const Graph& graph);

/// The request that a plan was made for. With a work limit, no time limit and one thread, repeating it gives
/// the same plan on every machine.
struct PlanRequest {
  std::string version;  ///< of Remat
  std::string planner;  ///< that was called; `PlanRecord::planner` found the plan
  Objective objective = Objective::kTime;
  std::optional<double> time_limit;  ///< seconds
  std::optional<std::int64_t> work_limit;
  double gap_limit = 0;  ///< as a share; 0: none
  int threads = 1;
  std::map<std::string, std::string> options;  ///< of the planner
  friend bool operator==(const PlanRequest&, const PlanRequest&) = default;
};
/// All but the limits, which the caller fills in.
PlanRequest make_request(const Problem& problem, std::string_view planner, const PlanOptions& options);

/// The contents of a plan file (docs/formats.md). Only `steps` is required; what a file does not state is
/// empty here and not checked.
struct PlanRecord {
  std::string graph_name;
  std::string graph_hash;
  std::optional<Bytes> budget;
  OrderMode order = OrderMode::kFixed;
  std::string planner;
  std::uint64_t seed = 0;
  std::string status;
  std::optional<Bytes> peak;
  std::optional<Duration> duration;
  std::optional<double> overhead;
  std::optional<Bytes> peak_bound;
  std::optional<Duration> duration_bound;
  std::vector<std::int64_t> steps;  ///< as in the file, unchecked
  std::vector<Copy> copies;         ///< as in the file, unchecked; none in files of version 1
  std::optional<Host> host;         ///< host that the durations assume; only in files with copies
  std::optional<PlanRequest> request;
  std::vector<std::string> warnings;  ///< of the reader; never written
};

/// Steps and copies of a record whose plan is valid.
Plan recorded_plan(const PlanRecord& record);

PlanRecord make_record(const Problem& problem, const PlanResult& result, std::uint64_t seed);
PlanRecord load_plan(const std::filesystem::path& path);
PlanRecord parse_plan(std::string_view text, std::string_view place);
void save_plan(const PlanRecord& plan, const std::filesystem::path& path);
std::string format_plan(const PlanRecord& plan);

/// Recomputes everything from `steps` and `copies` alone. Returns one line per difference, a broken rule
/// first; empty if the record is right.
std::vector<std::string> check_record(const Graph& graph, const PlanRecord& plan);

/// "6442450944", "6GiB", "800MB", "75%" (of `keep_all_peak`) to bytes. Throws UsageError for anything else,
/// zero and negative amounts included; with a `floor`, also for a small number below it that seems to lack a
/// unit ("70" for "70%"), unless the graph itself is tiny.
Bytes parse_budget(std::string_view text, Bytes keep_all_peak, Bytes floor = Bytes());
/// "25GB/s", "1.5 GiB/s" to bytes per second. Throws UsageError for anything else, numbers without a unit
/// included.
std::int64_t parse_bandwidth(std::string_view text);
/// "0.1%" to 0.001, "0" to 0. Throws UsageError for anything else.
double parse_gap(std::string_view text);
/// "10s", "500ms", "2m", "1h" or a plain number of seconds. Throws UsageError.
double parse_seconds(std::string_view text);
/// For people, three digits: "3.56 GiB", "12.3 MiB", "512 B".
std::string format_bytes(Bytes bytes);
/// Rounded and exact: "3.56 GiB (3825205248 bytes)", "512 bytes".
std::string exact_bytes(Bytes bytes);
/// A budget in bytes, behind the share that was asked for, if any: "60% (3.56 GiB, 3825205248 bytes)".
std::string describe_budget(std::string_view asked, Bytes bytes);

/// What a file holds.
enum class FileKind { kGraph, kPlan, kLayout, kBuffers, kOther };
/// Whole file; throws InputError. The file is remembered as an input of this process.
std::string read_file(const std::filesystem::path& path, FileKind kind = FileKind::kOther);
/// Atomic (written beside, then renamed), through symbolic links; throws InputError and leaves no partial
/// file. Refuses to replace a file that this process has read as another kind.
void write_file(const std::filesystem::path& path, std::string_view text, FileKind kind = FileKind::kOther);
/// The refusal of `write_file`, for use before a long run: throws InputError if `path` is, under any name, a
/// file that was read as another kind.
void refuse_to_replace_input(const std::filesystem::path& path, FileKind kind);

}  // namespace REMAT_API remat
