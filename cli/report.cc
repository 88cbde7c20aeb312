// remat report: plans of a graph as a page for people, or as a file for other programs' viewers.
#include "remat/report.h"

#include "allocator.h"
#include "commands.h"
#include "common.h"
#include "progress.h"
#include "remat/error.h"
#include "remat/keep_all.h"
#include "remat/store.h"

namespace remat::cli {
namespace {

/// The budgets of the plans, around which the curve gets more points.
std::vector<Bytes> budgets_shown(const ReportContent& content, OrderMode order) {
  std::vector<Bytes> budgets;
  for (const ReportPlan& plan : content.plans) {
    if (plan.record.budget && plan.record.order == order && !plan.record.host) {
      budgets.push_back(*plan.record.budget);
    }
  }
  return budgets;
}

struct ReportCommand {
  std::string graph, out, format = "html", planner = "auto";
  std::vector<std::string> plans, planners;
  int points = 12;
  bool json = false;
  EffortOptions effort;
  AllocatorOption allocator;

  int run() {
    const ReportFormat wanted = parse_report_format(format);
    effort.finish();
    check_usage();
    const LoadedGraph loaded = load_and_warn(graph);
    refuse_to_replace_input(out, FileKind::kOther);
    ReportContent content;
    content.graph = &loaded.graph;
    content.command = command_line();
    content.allocator = allocator.read();
    read_plans(content);
    const bool has_curve = wanted == ReportFormat::kHtml || wanted == ReportFormat::kJson;
    check_report(content);
    if (has_curve && points > 0) add_curves(content);
    const std::string text = format_report(content, wanted);
    write_output(out, text);
    Report said;
    said["report_file"] = out;
    said["format"] = format;
    said["plans"] = content.plans.size();
    said["points"] = content.curves.empty() ? 0 : content.curves.front().sweep.points.size();
    said["bytes"] = text.size();
    print(said, json);
    return interrupted_ ? kInterrupted : kOk;
  }

 private:
  void check_usage() const {
    const ReportFormat wanted = parse_report_format(format);
    const bool has_curve = wanted == ReportFormat::kHtml || wanted == ReportFormat::kJson;
    if (!planners.empty() && !has_curve) throw UsageError("--planners goes with the formats html and json");
    if (!allocator.text.empty() && !has_curve) {
      throw UsageError("--allocator goes with the formats html and json");
    }
    allocator.read();
    if (!planners.empty() && points == 0) throw UsageError("--planners needs a curve: --points 2 or more");
    if (points == 1) throw UsageError("a curve has 2 points or more; --points 0 leaves it out");
    find_planner(planner);
    for (const std::string& name : planners) find_planner(name);
    prepare_outputs({{"-o", out}});
  }

  /// The command line to type again, without defaults.
  std::string command_line() const {
    std::string line = "remat report " + graph;
    for (const std::string& plan : plans) line += " " + plan;
    line += " -o " + out;
    if (points != 12) line += " --points " + std::to_string(points);
    if (planner != "auto") line += " --planner " + planner;
    for (std::size_t i = 0; i < planners.size(); ++i) line += (i == 0 ? " --planners " : ",") + planners[i];
    if (!allocator.text.empty()) line += " --allocator " + allocator.text;
    if (effort.gap != EffortOptions().gap) line += " --gap " + effort.gap;
    if (effort.time_limit) line += " --time-limit " + *effort.time_limit;
    if (effort.work_limit) line += " --work-limit " + std::to_string(*effort.work_limit);
    if (effort.plan.seed != 0) line += " --seed " + std::to_string(effort.plan.seed);
    return line;
  }

  void read_plans(ReportContent& content) const {
    const std::string hash = graph_hash(*content.graph);
    for (const std::string& path : plans) {
      PlanRecord record = load_plan_and_warn(path);
      if (!record.graph_hash.empty() && record.graph_hash != hash) {
        throw InputError(path + ": the plan is of another graph: graph_hash " + record.graph_hash +
                         ", that of " + graph + " is " + hash);
      }
      content.plans.push_back({path, std::move(record)});
    }
  }

  void add_curves(ReportContent& content) {
    const OrderMode order = content.plans.empty() ? OrderMode::kFixed : content.plans.front().record.order;
    std::vector<std::string> names{planner};
    names.insert(names.end(), planners.begin(), planners.end());
    for (const std::string& name : names) {
      const std::string number = std::to_string(content.curves.size() + 1);
      const std::string which = names.size() > 1 ? number + " of " + std::to_string(names.size()) : "";
      content.curves.push_back({name, order, curve(content, name, order, which)});
      interrupted_ |= content.curves.back().sweep.stopped_by == StoppedBy::kInterrupted;
      if (interrupted_) return;
    }
  }

  SweepResult curve(const ReportContent& content, const std::string& name, OrderMode order,
                    const std::string& which) const {
    Limits limits;
    effort.apply(limits);
    limits.set_stop(&catch_interrupts());
    PlanStore store;
    // A shown plan counts only on the curve of the planner that made it.
    for (const ReportPlan& plan : content.plans) {
      if (name == planner && plan.record.order == order) {
        store.add(*content.graph, order, valid_plan(*content.graph, plan.record, plan.title));
      }
    }
    SweepOptions options{name, order, points, effort.plan};
    if (name == planner) options.around = budgets_shown(content, order);
    ProgressLine progress(content.graph, keep_all_peak(*content.graph), which);
    progress.attach(limits);
    return sweep(*content.graph, options, limits, store);
  }

  bool interrupted_ = false;
};

}  // namespace

void add_report(CLI::App& app, Action& action) {
  auto command = std::make_shared<ReportCommand>();
  CLI::App* sub = app.add_subcommand("report", "a page that shows where memory goes under plans");
  sub->add_option("GRAPH", command->graph, "remat.graph or node-link JSON")->required();
  sub->add_option("PLAN", command->plans, "plans of the graph; keeping everything is always shown");
  add_output(*sub, "-o,--output", command->out, "write the report here")->type_name("FILE")->required();
  take_one_of(
      *sub->add_option("--format", command->format,
                       "dot is for Graphviz, perfetto for ui.perfetto.dev, memory_viz for PyTorch's viewer "
                       "(default: html)"),
      {"html", "json", "csv", "dot", "perfetto", "memory_viz"});
  add_whole(*sub, "--points", command->points, 0, kMostPoints,
            "number of budgets of the curve of overhead against memory, 0 for no curve (default: 12)");
  sub->add_option("--planner", command->planner, "planner of the curve (default: auto)")->type_name("NAME");
  sub->add_option("--planners", command->planners, "also draw the curves of these planners: dtr,checkmate_lp")
      ->delimiter(',')
      ->type_name("NAMES");
  command->allocator.declare(*sub);
  command->effort.default_time = "5s";  // viewing a plan should not take as long as planning
  command->effort.declare(*sub);
  sub->add_flag("--json", command->json, "print one JSON object");
  sub->callback([command, &action] { action = [command] { return command->run(); }; });
}

}  // namespace remat::cli
