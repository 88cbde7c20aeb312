// remat compare: several planners on one problem, side by side.
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <iostream>
#include <set>

#include "commands.h"
#include "common.h"
#include "host.h"
#include "others.h"
#include "people.h"
#include "progress.h"
#include "remat/bounds.h"
#include "remat/error.h"
#include "remat/keep_all.h"

namespace remat::cli {
namespace {

/// One row. A planner that cannot run keeps its row, with the reason.
struct Row {
  std::string planner;
  std::optional<PlanResult> result;
  std::string note;

  /// `for_people`: shows "over budget" in place of "unknown", and drops that column.
  Report report(const Problem& problem, bool for_people) const {
    const bool ran = result.has_value();
    const bool shown = ran && result->plan;
    Report row;
    row["planner"] = planner;
    row["status"] = ran ? Report(to_string(result->status)) : Report("not run");
    row["overhead_percent"] =
        shown ? Report(100 * overhead(*problem.graph, result->cost.duration)) : Report(nullptr);
    row["peak"] = shown ? Report(result->cost.peak.count()) : Report(nullptr);
    if (problem.host) {
      row["stalled"] = shown ? Report(result->cost.traffic.stalled.count()) : Report(nullptr);
      row["bytes_out"] = shown ? Report(result->cost.traffic.out.count()) : Report(nullptr);
    }
    const bool over = shown && !within_budget(problem, result->cost);
    if (for_people && over) row["status"] = "over budget";
    if (!for_people) row["over_budget"] = shown ? Report(over ? "yes" : "no") : Report(nullptr);
    row["peak_bound"] = ran ? Report(result->peak_bound.peak.count()) : Report(nullptr);
    row["duration_bound"] = ran ? Report(result->duration_bound.duration.count()) : Report(nullptr);
    row["gap_percent"] = ran && has_plan(*result) ? Report(100 * gap(*result)) : Report(nullptr);
    row["stopped_by"] = ran ? Report(to_string(result->stopped_by)) : Report(nullptr);
    row["seconds"] = ran ? Report(result->seconds) : Report(nullptr);
    row["note"] = note;
    return row;
  }
};

/// which: "2 of 3".
Row run_planner(const Problem& problem, const std::string& name, const EffortOptions& effort,
                Bytes keep_all_peak, const std::string& which) {
  Row row{name, std::nullopt, ""};
  if (catch_interrupts()) {
    row.note = "interrupted before its turn";
    return row;
  }
  if (const auto reason = find_planner(name).supports(problem)) {
    row.note = *reason;
    return row;
  }
  Limits limits;
  effort.apply(limits);
  limits.set_stop(&catch_interrupts());
  ProgressLine progress(problem.graph, keep_all_peak, which);
  progress.attach(limits);
  try {
    row.result = make_plan(problem, name, effort.plan, limits);
    if (row.result->planner != name) row.note = "plan by " + row.result->planner;
  } catch (const InputError& error) {
    row.note = error.what();
  } catch (const std::logic_error& error) {
    row.note = std::string("bug: ") + error.what();
  }
  return row;
}

Row judge(const Problem& problem, const OtherPlan& other, const std::string& graph_file, double run_limit) {
  if (catch_interrupts()) return {other.name, std::nullopt, "interrupted before its turn"};
  OtherResult judged = judge_other_plan(problem, other, graph_file, run_limit);
  return {other.name, std::move(judged.result), std::move(judged.note)};
}

/// The file for a planner's plan.
std::filesystem::path plan_file(const std::string& folder, const std::string& planner, bool fits) {
  return std::filesystem::path(folder) / (planner + (fits ? ".json" : ".over_budget.json"));
}

struct CompareCommand {
  std::string graph, budget, order = "fixed", out_dir, run_limit = "10m";
  std::vector<std::string> names, plan_files, commands;
  std::vector<OtherPlan> others;
  bool json = false;
  EffortOptions effort;
  HostOptions host;

  int run() {
    effort.finish();
    if (names.empty()) {
      for (const PlannerInfo& planner : planners()) names.emplace_back(planner.name);
    }
    for (const std::string& name : names) find_planner(name);
    others = parse_other_plans(plan_files, commands);
    const double most_of_run = parse_seconds(run_limit);
    if (graph == "-" && !commands.empty()) throw UsageError("--run needs a graph that is a file");
    const LoadedGraph loaded = load_and_warn(graph);
    const Bytes keep_all_peak = remat::keep_all_peak(loaded.graph);
    Problem problem;
    problem.graph = &loaded.graph;
    problem.order = parse_order(order);
    problem.budget = parse_budget(budget, keep_all_peak, floor_bound(loaded.graph).peak);
    problem.host = host.read(loaded.graph, graph);
    if (!out_dir.empty()) create_folder(out_dir);
    if (!out_dir.empty()) check_files();
    if (::isatty(STDERR_FILENO) == 1) std::cerr << "remat: " << most_effort(problem) << "\n";
    Report rows = Report::array();
    bool found = false, proved_infeasible = false;
    const auto add = [&](const Row& row, bool is_ours) {
      rows.push_back(row.report(problem, !json && terminal_columns() > 0));
      if (!row.result) return;
      found |= has_plan(*row.result);
      proved_infeasible |= row.result->status == Status::kInfeasible;
      if (!out_dir.empty() && row.result->plan) {
        const Request request{.problem = problem, .planner = row.planner, .effort = effort.settled()};
        const PlanRecord record =
            is_ours ? make_record(request, *row.result) : make_record(problem, *row.result, effort.plan.seed);
        save_plan(record, plan_file(out_dir, row.planner, has_plan(*row.result)));
      }
    };
    for (const std::string& name : names) {
      const std::string which = std::to_string(rows.size() + 1) + " of " + std::to_string(names.size());
      add(run_planner(problem, name, effort, keep_all_peak, which), true);
    }
    for (const OtherPlan& other : others) add(judge(problem, other, graph, most_of_run), false);
    Report report;
    report["graph"] = loaded.graph.name;
    report["order"] = to_string(problem.order);
    report["budget"] = problem.budget.count();
    report["keep_all_peak"] = keep_all_peak.count();
    report["base_duration"] = loaded.graph.base_duration.count();
    report["gap_limit"] = effort.gap_limit;
    report["seed"] = effort.plan.seed;
    report["planners"] = std::move(rows);
    print(report, json,
          {.time_unit = std::string(loaded.graph.time_unit),
           .spare = {"duration_bound", "peak_bound", "stopped_by", "seconds"}});
    if (catch_interrupts()) return kInterrupted;
    return found ? kOk : proved_infeasible ? kInfeasible : kNothingFound;
  }

 private:
  /// No plan may replace an input or a plan of another planner.
  void check_files() const {
    std::vector<Output> files;
    std::set<std::string> known(names.begin(), names.end());
    for (const OtherPlan& other : others) known.insert(other.name);
    for (const std::string& name : known) {
      for (const bool fits : {true, false}) {
        const std::filesystem::path path = plan_file(out_dir, name, fits);
        refuse_to_replace_input(path, FileKind::kPlan);
        files.push_back({path.filename().string(), path.string()});
      }
    }
    require_different_files(files);
  }

  /// "3 planners, at most 10 s each, 30 s in all".
  std::string most_effort(const Problem& problem) const {
    const auto running = std::ranges::count_if(
        names, [&](const std::string& name) { return !find_planner(name).supports(problem); });
    std::string line = std::to_string(running) + (running == 1 ? " planner" : " planners");
    if (effort.work_limit) line += ", at most " + std::to_string(*effort.work_limit) + " units of work each";
    if (const auto seconds = effort.seconds()) {
      const double all = *seconds * static_cast<double>(running);
      line += ", at most " + format_seconds(*seconds) + " each, " + format_seconds(all) + " in all";
    }
    return line;
  }
};

}  // namespace

void add_compare(CLI::App& app, Action& action) {
  auto command = std::make_shared<CompareCommand>();
  CLI::App* sub = app.add_subcommand("compare", "run several planners on one problem");
  sub->add_option("GRAPH", command->graph, "remat.graph or node-link JSON")->required();
  sub->add_option("-b,--budget", command->budget,
                  "memory: 6442450944, 6GiB, 800MB, 75% (of the keep-all peak)")
      ->required()
      ->type_name("B");
  sub->add_option("--planners", command->names, "names separated by commas (default: all)")
      ->delimiter(',')
      ->type_name("A,B,...");
  sub->add_option("--plan", command->plan_files,
                  "also a plan of another program, validated and simulated likewise; may be repeated")
      ->type_name("NAME=FILE")
      ->take_all();
  sub->add_option(
         "--run", command->commands,
         "also the plan of another program: a command that writes to {out}, given {graph} and {budget} "
         "in bytes; may be repeated")
      ->type_name("NAME=COMMAND")
      ->take_all();
  sub->add_option("--run-limit", command->run_limit,
                  "time limit of each command, which is then killed with its child processes (default: 10m)")
      ->type_name("TIME");
  declare_order(*sub, command->order);
  command->effort.declare(*sub);
  command->host.declare(*sub);
  add_output(*sub, "--out-dir", command->out_dir,
             "write each plan to DIR/PLANNER.json, or PLANNER.over_budget.json")
      ->type_name("DIR");
  sub->add_flag("--json", command->json, "print one JSON object");
  sub->callback([command, &action] { action = [command] { return command->run(); }; });
}

}  // namespace remat::cli
