// remat sweep: overhead against memory over the whole range.
#include "remat/sweep.h"

#include <filesystem>
#include <iostream>
#include <sstream>

#include "commands.h"
#include "common.h"
#include "host.h"
#include "progress.h"
#include "remat/error.h"
#include "remat/keep_all.h"

namespace remat::cli {
namespace {

std::string csv_text(const Report& rows) {
  std::ostringstream text;
  const char* separator = "";
  for (const auto& [key, value] : rows.front().items()) {
    text << separator << key;
    separator = ",";
  }
  for (const Report& row : rows) {
    separator = "\n";
    for (const auto& [key, value] : row.items()) {
      text << separator
           << (value.is_string() ? value.get<std::string>()
               : value.is_null() ? ""
                                 : value.dump());
      separator = ",";
    }
  }
  text << "\n";
  return text.str();
}

/// Budgets are known only during the sweep, so no input may have the name of any such file.
void refuse_inputs_named_as_budgets(const std::string& folder) {
  const auto is_budget = [](const std::filesystem::path& path) {
    const std::string stem = path.stem().string();
    return path.extension() == ".json" && stem.find_first_not_of("0123456789") == std::string::npos;
  };
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    if (!is_budget(entry.path())) continue;
    refuse_to_replace_input(entry.path(), FileKind::kPlan);
    if (!entry.is_symlink()) continue;
    const std::filesystem::path target =
        entry.path().parent_path() / std::filesystem::read_symlink(entry.path());
    std::error_code error;
    if (!is_budget(target) || !std::filesystem::equivalent(target.parent_path(), folder, error)) continue;
    require_different_files({{entry.path().filename().string(), entry.path().string()},
                             {target.filename().string(), target.string()}});
  }
}

struct SweepCommand {
  std::string graph, order = "fixed", out_dir;
  SweepOptions sweep;
  bool json = false, csv = false;
  EffortOptions effort;
  HostOptions host;

  int run() {
    Limits limits;  // started here, so that time limits include reading the graph
    effort.finish();
    if (json && csv) throw UsageError("--json and --csv exclude each other");
    find_planner(sweep.planner);
    const LoadedGraph loaded = load_and_warn(graph);
    sweep.order = parse_order(order);
    sweep.plan = effort.plan;
    sweep.host = host.read(loaded.graph, graph);
    if (!out_dir.empty()) {
      create_folder(out_dir);
      refuse_inputs_named_as_budgets(out_dir);
    }

    effort.apply(limits);
    limits.set_stop(&catch_interrupts());
    PlanStore store;
    SweepResult result;
    {
      ProgressLine progress(&loaded.graph, keep_all_peak(loaded.graph));
      progress.attach(limits);
      result = remat::sweep(loaded.graph, sweep, limits, store);
    }
    Report rows = Report::array();
    for (const SweepPoint& point : result.points) {
      rows.push_back(row(point, loaded.graph, result.keep_all_peak));
      if (out_dir.empty() || !point.result.plan) continue;
      Problem problem{&loaded.graph, point.budget, sweep.order};
      problem.host = sweep.host;
      save_plan(make_record(problem, point.result, effort.plan.seed),
                std::filesystem::path(out_dir) / (std::to_string(point.budget.count()) + ".json"));
    }
    const int code = result.stopped_by == StoppedBy::kInterrupted ? kInterrupted : kOk;
    if (csv) {
      std::cout << csv_text(rows);
      return code;
    }
    Report report;
    report["graph"] = loaded.graph.name;
    report["order"] = to_string(sweep.order);
    report["keep_all_peak"] = result.keep_all_peak.count();
    report["smallest_peak"] = result.smallest_peak.count();
    report["peak_lower_bound"] = result.peak_bound.peak.count();
    report["base_duration"] = loaded.graph.base_duration.count();
    report["stopped_by"] = result.stopped_by ? Report(to_string(*result.stopped_by)) : Report(nullptr);
    report["gap_limit"] = effort.gap_limit;
    report["seconds"] = result.seconds;
    report["seed"] = effort.plan.seed;
    report["points"] = std::move(rows);
    print(report, json,
          {.time_unit = std::string(loaded.graph.time_unit),
           .spare = {"duration_lower_bound", "duration", "status", "planner"}});
    return code;
  }

  Report row(const SweepPoint& point, const Graph& graph_read, Bytes keep_all_peak) const {
    const PlanResult& result = point.result;
    const bool found = result.plan.has_value();
    Report row;
    row["budget"] = point.budget.count();
    row["budget_percent"] =
        100.0 * static_cast<double>(point.budget.count()) / static_cast<double>(keep_all_peak.count());
    row["peak"] = found ? Report(result.cost.peak.count()) : Report(nullptr);
    row["overhead_percent"] =
        found ? Report(100 * overhead(graph_read, result.cost.duration)) : Report(nullptr);
    row["duration"] = found ? Report(result.cost.duration.count()) : Report(nullptr);
    row["duration_lower_bound"] = result.duration_bound.duration.count();
    if (sweep.host) row["stalled"] = found ? Report(result.cost.traffic.stalled.count()) : Report(nullptr);
    if (sweep.host) row["bytes_out"] = found ? Report(result.cost.traffic.out.count()) : Report(nullptr);
    row["status"] = to_string(result.status);
    row["planner"] = result.planner;
    row["knee"] = point.knee ? "knee" : "";
    return row;
  }
};

}  // namespace

void add_sweep(CLI::App& app, Action& action) {
  auto command = std::make_shared<SweepCommand>();
  CLI::App* sub =
      app.add_subcommand("sweep", "overhead against memory, from keep-all down to the smallest peak");
  sub->add_option("GRAPH", command->graph, "remat.graph or node-link JSON")->required();
  sub->add_option("--planner", command->sweep.planner, "see 'remat planners' (default: auto)")
      ->type_name("NAME");
  add_whole(*sub, "--points", command->sweep.points, kLeastPoints, kMostPoints,
            "number of budgets (default: 20)");
  declare_order(*sub, command->order);
  command->effort.declare(*sub);
  command->host.declare(*sub);
  add_output(*sub, "--out-dir", command->out_dir, "write the plan of each point to DIR/BUDGET.json")
      ->type_name("DIR");
  sub->add_flag("--json", command->json, "print one JSON object");
  sub->add_flag("--csv", command->csv, "print the points as CSV");
  sub->callback([command, &action] { action = [command] { return command->run(); }; });
}

}  // namespace remat::cli
