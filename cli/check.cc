// remat check: recomputes the contents of a file from the plan's steps, or the layout's offsets, alone.
#include <iostream>

#include "commands.h"
#include "common.h"
#include "host.h"
#include "remat/bounds.h"
#include "remat/error.h"
#include "remat/keep_all.h"
#include "remat/layout.h"
#include "remat/layout_io.h"

namespace remat::cli {
namespace {

struct CheckCommand {
  std::string graph, plan, layout, budget, order, capacity;
  std::optional<std::int64_t> alignment;
  HostOptions host;
  bool json = false;

  int run() const {
    const auto refuse = [](bool given, const std::string& what, const std::string& where) {
      if (given) throw UsageError(what + " is for " + where);
    };
    if (plan.empty()) {
      refuse(!budget.empty(), "--budget", "a plan; a table of buffers has a --capacity");
      refuse(!order.empty(), "--order", "a plan");
      refuse(host.is_given(), "--host", "a plan");
      return check_table();
    }
    refuse(!capacity.empty(), "--capacity", "a table of buffers; the arena of a plan has a --budget");
    refuse(alignment.has_value(), "--align", "a table of buffers");
    if (layout.empty()) return check_plan();
    refuse(!order.empty(), "--order", "a plan without a layout");
    refuse(host.is_given(), "--host", "a plan without a layout");
    return check_layout();
  }

 private:
  int check_plan() const {
    const LoadedGraph loaded = load_and_warn(graph);
    const Graph& g = loaded.graph;
    PlanRecord record = load_plan_and_warn(plan);
    const Bytes keep_all_peak = remat::keep_all_peak(g);
    if (!budget.empty()) record.budget = parse_budget(budget, keep_all_peak, floor_bound(g).peak);
    if (!order.empty()) record.order = parse_order(order);
    if (const auto given = host.read(g, graph)) record.host = given;
    if (record.host) of_file(plan, [&] { require_time_unit(g); });

    const auto violation = validate(g, record.steps, record.order, record.budget, record.copies,
                                    record.host ? &*record.host : nullptr);
    const std::vector<std::string> differences = check_record(g, record);
    Report report;
    report["valid"] = differences.empty();
    report["rule"] = violation ? Report(to_string(violation->rule)) : Report(nullptr);
    report["step"] = violation && violation->step ? Report(violation->step.index()) : Report(nullptr);
    report["order"] = to_string(record.order);
    report["budget"] = record.budget ? Report(record.budget->count()) : Report(nullptr);
    report["steps"] = record.steps.size();
    if (!violation || violation->rule == Rule::kBudget || violation->rule == Rule::kHostBudget) {
      add_cost(report, g, record, keep_all_peak);
    }
    return finish(std::move(report), plan, differences, {.time_unit = std::string(g.time_unit)});
  }

  /// Peak, duration and the traffic of copies, whose times are unknown without a host.
  void add_cost(Report& report, const Graph& g, const PlanRecord& record, Bytes keep_all_peak) const {
    const Plan steps = recorded_plan(record);
    const Simulation cost = simulate(g, steps, record.host ? &*record.host : nullptr);
    const bool is_timed = record.copies.empty() || record.host;
    report["peak"] = cost.peak.count();
    report["peak_step"] = cost.peak_step.index();
    report["keep_all_peak"] = keep_all_peak.count();
    report["duration"] = is_timed ? Report(cost.duration.count()) : Report(nullptr);
    report["base_duration"] = g.base_duration.count();
    report["overhead"] = is_timed ? Report(overhead(g, cost.duration)) : Report(nullptr);
    report["recomputed_ops"] = recomputed_ops(g, steps);
    if (!record.copies.empty()) add_traffic(report, cost, is_timed);
  }

  int check_layout() const {
    const LoadedGraph loaded = load_and_warn(graph);
    const PlanRecord record = load_plan_and_warn(plan);
    const Plan steps = valid_plan(loaded.graph, record, plan);
    const LayoutRecord offsets = load_layout_and_warn(layout);
    std::vector<std::string> differences = check_layout_record(loaded.graph, steps, offsets);
    if (differences.empty() && !budget.empty()) {
      const Bytes most =
          parse_budget(budget, remat::keep_all_peak(loaded.graph), floor_bound(loaded.graph).peak);
      if (offsets.arena > most) {
        differences.push_back("the arena of " + exact_bytes(*offsets.arena) + " is above the budget of " +
                              exact_bytes(most));
      }
    }
    Report report;
    report["valid"] = differences.empty();
    report["buffers"] = offsets.buffers.size();
    report["alignment"] = offsets.alignment;
    report["arena"] = offsets.arena ? Report(offsets.arena->count()) : Report(nullptr);
    report["peak"] = simulate(loaded.graph, steps).peak.count();
    return finish(std::move(report), layout, differences);
  }

  int check_table() const {
    const BufferTable table = load_buffers_and_warn(graph);
    if (!table.offsets) throw InputError(graph + ":1: the column 'offset' is missing");
    LayoutProblem problem{table.buffers, alignment.value_or(1), std::nullopt};
    const Bytes arena = arena_of(problem, *table.offsets);
    if (!capacity.empty()) problem.capacity = parse_capacity(capacity);
    const auto violation = validate_layout(problem, *table.offsets, problem.capacity.value_or(arena));
    Report report;
    report["valid"] = !violation;
    report["rule"] = violation ? Report(to_string(violation->rule)) : Report(nullptr);
    report["buffer"] = violation && violation->buffer ? Report(violation->buffer.index()) : Report(nullptr);
    report["buffers"] = table.buffers.size();
    report["alignment"] = problem.alignment;
    report["capacity"] = problem.capacity ? Report(problem.capacity->count()) : Report(nullptr);
    report["arena"] = arena.count();
    report["live_peak"] = of_file(graph, [&] { return live_peak(problem); }).count();
    std::vector<std::string> differences;
    if (violation) {
      differences.push_back("rule " + std::string(to_string(violation->rule)) + ": " + violation->message);
    }
    return finish(std::move(report), graph, differences);
  }

  int finish(Report report, const std::string& file, const std::vector<std::string>& differences,
             const Look& look = {}) const {
    if (!differences.empty()) report["difference"] = differences;
    print(report, json, look);
    if (differences.empty()) return kOk;
    std::cerr << "remat: " << one_line(file + ": " + differences.front()) << "\n";
    return kFailure;
  }
};

}  // namespace

void add_check(CLI::App& app, Action& action) {
  auto command = std::make_shared<CheckCommand>();
  CLI::App* sub = app.add_subcommand("check", "check a plan, a layout or a table of buffers by every rule");
  sub->add_option("GRAPH", command->graph,
                  "remat.graph or node-link JSON; or, alone, a CSV table of buffers with their offsets")
      ->required();
  sub->add_option("PLAN", command->plan, "remat.plan");
  sub->add_option("LAYOUT", command->layout, "remat.layout of that plan");
  sub->add_option("-b,--budget", command->budget, "check against this budget instead of the plan's own")
      ->type_name("B");
  take_one_of(
      *sub->add_option("--order", command->order, "check against this order instead of the plan's own"),
      {"fixed", "free"});
  sub->add_option("--capacity", command->capacity, "the arena of a table must be within it")->type_name("B");
  add_whole(*sub, "--align", command->alignment, std::int64_t{1}, kMaxCount - 1,
            "offsets in a table must be multiples of it (default: 1)");
  command->host.declare(*sub);
  sub->add_flag("--json", command->json, "print one JSON object");
  sub->callback([command, &action] { action = [command] { return command->run(); }; });
}

}  // namespace remat::cli
