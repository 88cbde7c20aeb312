// remat plan: one problem, one planner, one plan.
#include <unistd.h>

#include <iostream>

#include "allocator.h"
#include "chart.h"
#include "commands.h"
#include "common.h"
#include "door.h"
#include "host.h"
#include "nearby.h"
#include "people.h"
#include "progress.h"
#include "remat/arena.h"
#include "remat/bounds.h"
#include "remat/error.h"
#include "remat/keep_all.h"
#include "remat/layout_io.h"
#include "remat/reserved.h"

namespace remat::cli {
namespace {

struct PlanCommand {
  std::string graph, budget, planner = "auto", order = "fixed", objective = "time", budget_on = "peak", out,
                             layout_out;
  std::int64_t alignment = kCacheLine;
  bool json = false, verbose = false;
  EffortOptions effort;
  HostOptions host;
  AllocatorOption allocator;
  DoorOption door;

  int run();

 private:
  bool on_arena() const { return budget_on == "arena"; }
  bool on_reserved() const { return budget_on == "reserved"; }
  void check_usage();
  PlanResult make(const Problem& problem, Limits& limits);
  void look_at_arena(const Problem& problem, const PlanResult& result);
  void look_at_allocator(const Problem& problem, const PlanResult& result);
  Report report(const Problem& problem, const PlanResult& result, Bytes keep_all_peak) const;
  void save(const Problem& problem, const PlanResult& result, Report& report) const;
  int explain_failure(const Problem& problem, const PlanResult& result, Report& report, Limits& limits,
                      std::string& message) const;
  void draw(const Problem& problem, const PlanResult& result, Bytes keep_all_peak) const;

  std::optional<ArenaPlan> arena_;  ///< of the plan; with a budget on the peak only where it is quickly had
  std::optional<AllocatorConfig> config_;  ///< where one was asked for
  std::optional<AllocatorPeaks> peaks_;    ///< of the plan under it, or of the closest one
};

template <class T>
Report or_null(bool known, const T& value) {
  return known ? Report(value) : Report(nullptr);
}

Report PlanCommand::report(const Problem& problem, const PlanResult& result, Bytes keep_all_peak) const {
  const Graph& g = *problem.graph;
  const bool found = has_plan(result);
  Report report;
  report["status"] = to_string(result.status);
  report["stopped_by"] = to_string(result.stopped_by);
  report["planner"] = result.planner;
  report["order"] = to_string(result.order);
  report["objective"] = to_string(problem.objective);
  report["budget"] = or_null(!budget.empty(), problem.budget.count());
  report["budget_on"] = budget_on;
  report["peak"] = or_null(found, result.cost.peak.count());
  report["arena"] = or_null(found && arena_, arena_ ? arena_->arena().count() : 0);
  if (config_) add_peaks(report, *config_, found ? &*peaks_ : nullptr);
  report["keep_all_peak"] = keep_all_peak.count();
  report["duration"] = or_null(found, result.cost.duration.count());
  report["base_duration"] = g.base_duration.count();
  report["overhead"] = or_null(found, overhead(g, result.cost.duration));
  report["recomputed_ops"] = found ? Report(recomputed_ops(g, *result.plan)) : Report(nullptr);
  if (problem.host && found) add_traffic(report, result.cost, true);
  report["peak_lower_bound"] = result.peak_bound.peak.count();
  report["peak_bound_argument"] = result.peak_bound.argument;
  report["duration_lower_bound"] = result.duration_bound.duration.count();
  report["duration_bound_argument"] = result.duration_bound.argument;
  report["gap"] = or_null(found, gap(result));
  report["gap_limit"] = effort.gap_limit;
  if (door.is_given()) door.add_to(report, problem);
  report["seconds"] = result.seconds;
  report["seed"] = effort.plan.seed;
  return report;
}

void PlanCommand::check_usage() {
  const bool by_peak = objective == "peak";
  if (budget.empty() && !by_peak)
    throw UsageError("--budget is required (only --objective peak goes without)");
  const bool on_peak = !on_arena() && !on_reserved();
  if (!on_peak && host.is_given()) {
    throw UsageError("--budget-on " + budget_on + " and --host do not go together");
  }
  if (!on_peak && by_peak) throw UsageError("--budget-on " + budget_on + " goes with --objective time only");
  config_ = allocator.read();
  if (on_reserved() && !config_) config_.emplace();
  if (door.is_given() && (!on_peak || host.is_given() || by_peak || order != "fixed")) {
    throw UsageError("--door " + door.name +
                     " goes with --order fixed, --objective time, --budget-on peak and no --host only");
  }
  find_planner(planner);
  prepare_outputs({{"-o", out}, {"--layout", layout_out}});
}

PlanResult PlanCommand::make(const Problem& problem, Limits& limits) {
  if (on_reserved()) {
    ReservedPlan found =
        of_file(graph, [&] { return make_reserved_plan(problem, planner, effort.plan, *config_, limits); });
    if (found.result.plan) peaks_ = found.peaks;
    return found.result;
  }
  if (door.is_given())
    return of_file(graph, [&] { return door.make(problem, planner, effort.plan, limits); });
  if (!on_arena()) return make_plan(problem, planner, effort.plan, limits);
  arena_ = make_arena_plan(problem, planner, effort.plan, alignment, limits);
  return arena_->result;
}

/// Lays out a plan that was made for its peak, for some milliseconds; for a file, whatever it takes.
void PlanCommand::look_at_arena(const Problem& problem, const PlanResult& result) {
  constexpr std::size_t kMostSteps = 20'000;
  if (arena_ || !has_plan(result) || (layout_out.empty() && result.plan->steps.size() > kMostSteps)) return;
  arena_.emplace();
  arena_->buffers = plan_buffers(*problem.graph, *result.plan, alignment);
  arena_->layout = of_file(graph, [&] { return glance_layout(arena_->buffers.problem); });
}

void PlanCommand::look_at_allocator(const Problem& problem, const PlanResult& result) {
  if (!config_ || peaks_ || !has_plan(result)) return;
  peaks_ = of_file(graph, [&] { return simulate_allocator(*problem.graph, *result.plan, *config_); });
}

void PlanCommand::save(const Problem& problem, const PlanResult& result, Report& report) const {
  if (!out.empty()) {
    PlanRecord record = make_record(problem, result, effort.plan.seed);
    // Budgets on other amounts and doors are not in a request: no file says how to make those again.
    if (!on_arena() && !on_reserved() && !door.is_given()) record.request = effort.request(problem, planner);
    write_output(out, format_plan(record), FileKind::kPlan);
    report["plan_file"] = out;
  }
  if (!layout_out.empty()) {
    const LayoutRecord record =
        make_layout_record(*problem.graph, *result.plan, arena_->buffers, arena_->layout);
    write_output(layout_out, format_layout(record), FileKind::kLayout);
    report["layout_file"] = layout_out;
  }
}

/// Why there is no plan, as keys and as a message; the exit code that says so.
int PlanCommand::explain_failure(const Problem& problem, const PlanResult& result, Report& report,
                                 Limits& limits, std::string& message) const {
  const std::string asked = describe_budget(budget, problem.budget);
  if (door.is_given()) {
    message = door.failure(asked, report);
    return result.status == Status::kInfeasible ? kInfeasible : kNothingFound;
  }
  if (result.status == Status::kInfeasible) {
    message =
        "proved infeasible: no plan of " + std::string(to_string(result.order)) + " order fits into " + asked;
    if (result.peak_bound.peak > problem.budget) {
      message += ", the bound '" + result.peak_bound.argument + "' is " + exact_bytes(result.peak_bound.peak);
    }
    const auto smallest = on_arena() || on_reserved()
                              ? std::nullopt
                              : smallest_known_budget(problem, result, effort.plan, limits);
    report["smallest_known_budget"] = smallest ? Report(smallest->count()) : Report(nullptr);
    if (smallest) message += "; the smallest budget known to work is " + exact_bytes(*smallest);
    return kInfeasible;
  }
  message = (budget.empty() ? "no plan" : "no plan within " + asked) + " found, nothing proved";
  report["best_peak"] = result.plan ? Report(result.cost.peak.count()) : Report(nullptr);
  if (result.plan) message += "; the best peak found is " + exact_bytes(result.cost.peak);
  if (on_arena() && result.plan) {
    report["best_arena"] = arena_->arena().count();
    message += ", the best arena " + exact_bytes(arena_->arena());
  }
  if (on_reserved() && result.plan) {
    report["best_reserved"] = peaks_->reserved.count();
    message += ", the least that is reserved " + exact_bytes(peaks_->reserved);
  }
  return kNothingFound;
}

/// At a terminal: memory by step, and what other budgets would cost beside it, or below where it is narrow.
void PlanCommand::draw(const Problem& problem, const PlanResult& result, Bytes keep_all_peak) const {
  constexpr std::size_t kGap = 3;
  const auto columns = static_cast<std::size_t>(terminal_columns());
  const auto chart = [&](std::size_t room) {
    return memory_chart(*problem.graph, *result.plan, keep_all_peak, static_cast<int>(room), wants_colours());
  };
  if (chart(columns).empty()) return;
  std::cout << "\nmemory by step, up to the keep-all peak:\n" << std::flush;
  std::vector<std::string> nearby;
  const bool has_curve =
      !door.is_given() && budget_on == "peak" && !problem.host && problem.objective == Objective::kTime;
  if (!budget.empty() && has_curve) {
    nearby = nearby_budgets(problem, result, keep_all_peak, effort.plan, catch_interrupts());
  }
  std::size_t wide = 0;
  for (const std::string& line : nearby) wide = std::max(wide, width_of(line));
  const std::size_t room = columns - std::min(columns, wide + kGap);
  const std::string narrow = nearby.empty() ? "" : chart(room);
  if (!narrow.empty()) {
    std::cout << beside(narrow, room + kGap, nearby);
    return;
  }
  std::cout << chart(columns);
  if (!nearby.empty()) std::cout << "\n" << beside("", 0, nearby);
}

int PlanCommand::run() {
  Limits limits;  // counts from here: for who waits, reading the graph is part of it
  effort.finish();
  check_usage();
  const LoadedGraph loaded = load_and_warn(graph);
  if (!out.empty()) refuse_to_replace_input(out, FileKind::kPlan);
  if (!layout_out.empty()) refuse_to_replace_input(layout_out, FileKind::kLayout);
  const Bytes keep_all_peak = remat::keep_all_peak(loaded.graph);
  Problem problem;
  problem.graph = &loaded.graph;
  problem.order = parse_order(order);
  problem.host = host.read(loaded.graph, graph);
  problem.objective = objective == "peak" ? Objective::kPeak : Objective::kTime;
  if (!budget.empty()) problem.budget = parse_budget(budget, keep_all_peak, floor_bound(loaded.graph).peak);

  effort.apply(limits);
  limits.set_stop(&catch_interrupts());
  PlanResult result;
  {
    ProgressLine progress(&loaded.graph, keep_all_peak);
    progress.attach(limits);
    result = make(problem, limits);
    look_at_arena(problem, result);
    look_at_allocator(problem, result);
  }
  Report said = report(problem, result, keep_all_peak);
  std::string message;
  int code = kOk;
  if (has_plan(result)) {
    save(problem, result, said);
  } else {
    code = explain_failure(problem, result, said, limits, message);
    for (const std::string* file : {&out, &layout_out}) {
      if (!file->empty()) message += "; " + output_name(*file) + " is not written";
    }
  }
  if (json || verbose) {
    for (const auto& [name, count] : result.counters) said["counter." + name] = count;
  }
  print(said, json, {.time_unit = std::string(loaded.graph.time_unit)});
  const bool is_for_people = !json && !is_standard_output_taken() && ::isatty(STDOUT_FILENO) == 1;
  if (has_plan(result) && is_for_people) draw(problem, result, keep_all_peak);
  if (code != kOk) std::cerr << "remat: " << one_line(message) << "\n";
  return code;
}

}  // namespace

void add_plan(CLI::App& app, Action& action) {
  auto command = std::make_shared<PlanCommand>();
  CLI::App* sub = app.add_subcommand("plan", "plan a graph within a budget");
  sub->add_option("GRAPH", command->graph, "remat.graph or node-link JSON")->required();
  sub->add_option("-b,--budget", command->budget,
                  "memory: 6442450944, 6GiB, 800MB, 75% (of the keep-all peak)")
      ->type_name("B");
  sub->add_option("--planner", command->planner, "see 'remat planners' (default: auto)")->type_name("NAME");
  declare_order(*sub, command->order);
  sub->add_option("--objective", command->objective,
                  "time: least time within the budget; peak: smallest peak, then least time (default: time)")
      ->check(CLI::IsMember({"time", "peak"}))
      ->type_name("time|peak");
  sub->add_option(
         "--budget-on", command->budget_on,
         "peak: live bytes are within the budget; arena: what they need with a fixed offset for each "
         "buffer is; reserved: what the allocator takes from the device is (default: peak)")
      ->check(CLI::IsMember({"peak", "arena", "reserved"}))
      ->type_name("peak|arena|reserved");
  command->allocator.declare(*sub);
  add_whole(*sub, "--align", command->alignment, std::int64_t{1}, kMaxCount - 1,
            "offsets in the arena are multiples of it (default: 64)");
  command->door.declare(*sub);
  command->effort.declare(*sub);
  command->host.declare(*sub);
  add_output(*sub, "-o,--output", command->out, "write the plan here, if it is within the budget")
      ->type_name("PLAN");
  add_output(*sub, "--layout", command->layout_out, "write the layout of the plan here")->type_name("LAYOUT");
  sub->add_flag("--json", command->json, "print one JSON object");
  sub->add_flag("--verbose", command->verbose, "print what the planner counted too");
  sub->callback([command, &action] { action = [command] { return command->run(); }; });
}

}  // namespace remat::cli
