// remat check: recomputes from a plan's steps alone what its file says.
#include <iostream>

#include "commands.h"
#include "common.h"
#include "remat/bounds.h"
#include "remat/keep_all.h"

namespace remat::cli {
namespace {

struct CheckCommand {
  std::string graph, plan, budget, order;
  bool json = false;

  int run() const;
};

int CheckCommand::run() const {
  const LoadedGraph loaded = load_and_warn(graph);
  const Graph& g = loaded.graph;
  PlanRecord record = load_plan(plan);
  for (const std::string& line : record.warnings) warn(line);
  const Bytes keep_all_peak = remat::keep_all_peak(g);
  if (!budget.empty()) record.budget = parse_budget(budget, keep_all_peak, floor_bound(g).peak);
  if (!order.empty()) record.order = parse_order(order);

  const auto violation = validate(g, record.steps, record.order, record.budget);
  const std::vector<std::string> differences = check_record(g, record);
  Report report;
  report["valid"] = differences.empty();
  report["rule"] = violation ? Report(to_string(violation->rule)) : Report(nullptr);
  report["step"] = violation && violation->step ? Report(violation->step.index()) : Report(nullptr);
  report["order"] = to_string(record.order);
  report["budget"] = record.budget ? Report(record.budget->count()) : Report(nullptr);
  report["steps"] = record.steps.size();
  if (!violation || violation->rule == Rule::kBudget) {
    Plan steps;
    for (std::int64_t op : record.steps) steps.steps.push_back(OpId(op));
    const Simulation cost = simulate(g, steps);
    report["peak"] = cost.peak.count();
    report["peak_step"] = cost.peak_step.index();
    report["keep_all_peak"] = keep_all_peak.count();
    report["duration"] = cost.duration.count();
    report["base_duration"] = g.base_duration.count();
    report["overhead"] = overhead(g, cost.duration);
    report["recomputed_ops"] = recomputed_ops(g, steps);
  }
  if (!differences.empty()) report["difference"] = differences;
  print(report, json);
  if (differences.empty()) return kOk;
  std::cerr << "remat: " << one_line(plan + ": " + differences.front()) << "\n";
  return kFailure;
}

}  // namespace

void add_check(CLI::App& app, Action& action) {
  auto command = std::make_shared<CheckCommand>();
  CLI::App* sub = app.add_subcommand("check", "check a plan against its graph by every rule");
  sub->add_option("GRAPH", command->graph, "remat.graph or node-link JSON")->required();
  sub->add_option("PLAN", command->plan, "remat.plan")->required();
  sub->add_option("-b,--budget", command->budget, "check against this budget instead of the plan's own")
      ->type_name("B");
  sub->add_option("--order", command->order, "check against this order instead of the plan's own")
      ->check(CLI::IsMember({"fixed", "free"}))
      ->type_name("fixed|free");
  sub->add_flag("--json", command->json, "print one JSON object");
  sub->callback([command, &action] { action = [command] { return command->run(); }; });
}

}  // namespace remat::cli
