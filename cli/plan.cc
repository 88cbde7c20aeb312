// remat plan: one problem, one planner, one plan.
#include <unistd.h>

#include <algorithm>
#include <iostream>

#include "allocator.h"
#include "chart.h"
#include "commands.h"
#include "common.h"
#include "host.h"
#include "nearby.h"
#include "people.h"
#include "progress.h"
#include "remat/bounds.h"
#include "remat/error.h"
#include "remat/keep_all.h"
#include "remat/layout_io.h"

namespace remat::cli {
namespace {

/// The values that an executor saves, and the full plan for comparison.
void add_executor(Report& report, const Request& request, const Answer& answer) {
  const ExecutorPlan& executor = *answer.executor_plan;
  const PlanResult& full = *answer.full;
  const bool found = has_plan(answer.result), is_full = has_plan(full);
  report["executor"] = to_string(request.executor);
  if (request.executor == Executor::kCheckpoint) {
    report["regions"] = executor.regions.size();
    report["regions_again"] = std::ranges::count_if(
        executor.regions, [](const CheckpointRegion& region) { return !region.again.empty(); });
  }
  report["saved_bytes"] = found ? Report(executor.saved_bytes.count()) : Report(nullptr);
  report["full_status"] = to_string(full.status);
  report["full_peak"] = is_full ? Report(full.cost.peak.count()) : Report(nullptr);
  report["full_duration"] = is_full ? Report(full.cost.duration.count()) : Report(nullptr);
  report["full_overhead"] =
      is_full ? Report(overhead(*request.problem.graph, full.cost.duration)) : Report(nullptr);
}

/// Why the executor has no plan.
std::string executor_failure(const Request& request, const Answer& answer, const std::string& asked,
                             Report& report) {
  const std::string set =
      "no set of saved results of the executor '" + std::string(to_string(request.executor)) + "' ";
  report["smallest_known_budget"] = answer.smallest_known->count();
  std::string message = answer.result.status == Status::kInfeasible
                            ? "proved infeasible: " + set + "fits into " + asked
                            : set + "within " + asked + " found, nothing proved";
  message += "; the smallest peak found is " + exact_bytes(*answer.smallest_known);
  if (has_plan(*answer.full)) message += "; a full plan has " + exact_bytes(answer.full->cost.peak);
  return message;
}

template <class T>
Report or_null(bool known, const T& value) {
  return known ? Report(value) : Report(nullptr);
}

/// A row for each call of `auto`; nothing of other planners.
Report log_rows(const std::vector<LogEntry>& log) {
  Report rows = Report::array();
  const auto add_plan = [](Report& row, const std::string& when, const std::optional<LoggedPlan>& plan) {
    row["duration_" + when] = plan ? Report(plan->duration.count()) : Report(nullptr);
    row["peak_" + when] = plan ? Report(plan->peak.count()) : Report(nullptr);
  };
  for (const LogEntry& entry : log) {
    Report row;
    row["seconds"] = entry.seconds;
    row["work"] = entry.work;
    row["round"] = entry.round;
    row["arm"] = entry.arm;
    add_plan(row, "before", entry.before);
    add_plan(row, "after", entry.after);
    row["fits"] = entry.after && entry.after->within_budget ? "yes" : "no";
    row["bound"] = entry.bound.count();
    row["gap"] = or_null(gap(entry).has_value(), gap(entry).value_or(0));
    rows.push_back(std::move(row));
  }
  return rows;
}

struct PlanCommand {
  std::string graph, budget, out, layout_out;
  bool json = false, verbose = false, asks_allocator = false;
  Request request;
  EffortOptions effort;
  HostOptions host;

  int run() {
    Limits limits;  // started here, so that time limits include reading the graph
    effort.finish();
    check_usage();
    const LoadedGraph loaded = load_and_warn(graph);
    if (!out.empty()) refuse_to_replace_input(out, FileKind::kPlan);
    if (!layout_out.empty()) refuse_to_replace_input(layout_out, FileKind::kLayout);
    keep_all_peak_ = keep_all_peak(loaded.graph);
    Problem& problem = request.problem;
    problem.graph = &loaded.graph;
    problem.host = host.read(loaded.graph, graph);
    if (!budget.empty())
      problem.budget = parse_budget(budget, keep_all_peak_, floor_bound(loaded.graph).peak);

    request.effort = effort.settled();
    effort.apply(limits);
    limits.set_stop(&catch_interrupts());
    {
      ProgressLine progress(&loaded.graph, keep_all_peak_);
      progress.attach(limits);
      answer_ = of_file(graph, [&] { return answer(request, limits); });
      find_layout();
      find_allocator_peaks();
    }
    Report said = report();
    std::string message;
    int code = kOk;
    if (has_plan(result())) {
      save(said);
    } else {
      code = explain_failure(said, limits, message);
      for (const std::string* file : {&out, &layout_out}) {
        if (!file->empty()) message += "; " + output_name(*file) + " is not written";
      }
    }
    if (json || verbose) {
      for (const auto& [name, count] : result().counters) said["counter." + name] = count;
      said["log"] = log_rows(result().log);
    }
    print(said, json,
          {.time_unit = std::string(loaded.graph.time_unit), .spare = {"work", "peak_before", "peak_after"}});
    const bool is_for_people = !json && !is_standard_output_taken() && ::isatty(STDOUT_FILENO) == 1;
    if (has_plan(result()) && is_for_people) draw();
    if (code != kOk) std::cerr << "remat: " << one_line(message) << "\n";
    return code;
  }

 private:
  void check_usage() const {
    if (budget.empty() && request.problem.objective != Objective::kPeak) {
      throw UsageError("--budget is required (only --objective peak goes without)");
    }
    Request asked = request;
    if (host.is_given()) asked.problem.host.emplace();  // read later, with the graph
    check_request(asked, spelled_for_shell);
    prepare_outputs({{"-o", out}, {"--layout", layout_out}});
  }

  /// Lays out a plan made for its peak, in a few milliseconds. Large plans only if the layout goes to a file.
  void find_layout() {
    constexpr std::size_t kMostSteps = 20'000;
    if (answer_.packed || !has_plan(result())) return;
    if (layout_out.empty() && result().plan->steps.size() > kMostSteps) return;
    PackedPlan& packed = answer_.packed.emplace();
    packed.buffers = plan_buffers(*request.problem.graph, *result().plan, request.alignment);
    packed.layout = of_file(graph, [&] { return glance_layout(packed.buffers.problem); });
  }

  void find_allocator_peaks() {
    if (!asks_allocator || answer_.peaks || !has_plan(result())) return;
    answer_.peaks = of_file(
        graph, [&] { return simulate_allocator(*request.problem.graph, *result().plan, request.allocator); });
  }

  Report report() const {
    const Problem& problem = request.problem;
    const Graph& g = *problem.graph;
    const PlanResult& found = result();
    const bool fits = has_plan(found);
    Report report;
    report["status"] = to_string(found.status);
    report["stopped_by"] = to_string(found.stopped_by);
    report["planner"] = found.planner;
    report["order"] = to_string(found.order);
    report["objective"] = to_string(problem.objective);
    report["budget"] = or_null(!budget.empty(), problem.budget.count());
    report["budget_on"] = to_string(request.budget_on);
    report["peak"] = or_null(fits, found.cost.peak.count());
    report["arena"] = or_null(fits && answer_.packed, answer_.packed ? answer_.packed->arena().count() : 0);
    if (asks_allocator) add_peaks(report, request.allocator, fits ? &*answer_.peaks : nullptr);
    report["keep_all_peak"] = keep_all_peak_.count();
    report["duration"] = or_null(fits, found.cost.duration.count());
    report["base_duration"] = g.base_duration.count();
    report["overhead"] = or_null(fits, overhead(g, found.cost.duration));
    report["recomputed_ops"] = fits ? Report(recomputed_ops(g, *found.plan)) : Report(nullptr);
    if (problem.host && fits) add_traffic(report, found.cost, true);
    report["peak_lower_bound"] = found.peak_bound.peak.count();
    report["peak_bound_argument"] = found.peak_bound.argument;
    report["duration_lower_bound"] = found.duration_bound.duration.count();
    report["duration_bound_argument"] = found.duration_bound.argument;
    report["gap"] = or_null(fits, gap(found));
    report["gap_limit"] = effort.gap_limit;
    if (answer_.executor_plan) add_executor(report, request, answer_);
    report["seconds"] = found.seconds;
    report["seed"] = effort.plan.seed;
    return report;
  }

  void save(Report& report) const {
    if (!out.empty()) {
      write_output(out, format_plan(make_record(request, result())), FileKind::kPlan);
      report["plan_file"] = out;
    }
    if (!layout_out.empty()) {
      const PackedPlan& packed = *answer_.packed;
      const LayoutRecord record =
          make_layout_record(*request.problem.graph, *result().plan, packed.buffers, packed.layout);
      write_output(layout_out, format_layout(record), FileKind::kLayout);
      report["layout_file"] = layout_out;
    }
  }

  /// Adds the reason why there is no plan, as keys and as a message. Returns the exit code.
  int explain_failure(Report& report, Limits& limits, std::string& message) const {
    const Problem& problem = request.problem;
    const PlanResult& found = result();
    const std::string asked = describe_budget(budget, problem.budget);
    if (answer_.executor_plan) {
      message = executor_failure(request, answer_, asked, report);
      return found.status == Status::kInfeasible ? kInfeasible : kNothingFound;
    }
    if (found.status == Status::kInfeasible) {
      message = "proved infeasible: no plan of " + std::string(to_string(found.order)) + " order fits into " +
                asked;
      if (found.peak_bound.peak > problem.budget) {
        message += ", the bound '" + found.peak_bound.argument + "' is " + exact_bytes(found.peak_bound.peak);
      }
      const auto smallest = answer_.smallest_known
                                ? answer_.smallest_known
                                : smallest_known_budget(problem, found, effort.plan, limits);
      report["smallest_known_budget"] = smallest ? Report(smallest->count()) : Report(nullptr);
      if (smallest) message += "; the smallest budget known to work is " + exact_bytes(*smallest);
      return kInfeasible;
    }
    message = (budget.empty() ? "no plan" : "no plan within " + asked) + " found, nothing proved";
    report["best_peak"] = found.plan ? Report(found.cost.peak.count()) : Report(nullptr);
    if (found.plan) message += "; the best peak found is " + exact_bytes(found.cost.peak);
    if (request.budget_on == Measure::kArena && found.plan) {
      report["best_arena"] = answer_.packed->arena().count();
      message += ", the best arena " + exact_bytes(answer_.packed->arena());
    }
    if (request.budget_on == Measure::kReserved && found.plan) {
      report["best_reserved"] = answer_.peaks->reserved.count();
      message += ", the least that is reserved " + exact_bytes(answer_.peaks->reserved);
    }
    return kNothingFound;
  }

  /// At a terminal: draws memory by step, and the overhead at other budgets beside it, or below if narrow.
  void draw() const {
    const Problem& problem = request.problem;
    constexpr std::size_t kGap = 3;
    const auto columns = static_cast<std::size_t>(terminal_columns());
    const auto chart = [&](std::size_t room) {
      return memory_chart(*problem.graph, *result().plan, keep_all_peak_, static_cast<int>(room),
                          wants_colours());
    };
    if (chart(columns).empty()) return;
    std::cout << "\nmemory by step, up to the keep-all peak:\n" << std::flush;
    std::vector<std::string> nearby;
    const bool has_curve = !answer_.executor_plan && request.budget_on == Measure::kPeak && !problem.host &&
                           problem.objective == Objective::kTime;
    if (!budget.empty() && has_curve) {
      nearby = nearby_budgets(problem, result(), keep_all_peak_, effort.plan, catch_interrupts());
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

  const PlanResult& result() const { return answer_.result; }

  /// With a budget on the peak, `packed` is set only if a layout was found quickly, `peaks` with --allocator.
  Answer answer_;
  Bytes keep_all_peak_;
};

}  // namespace

void add_plan(CLI::App& app, Action& action) {
  auto command = std::make_shared<PlanCommand>();
  CLI::App* sub = app.add_subcommand("plan", "plan a graph within a budget");
  sub->add_option("GRAPH", command->graph, "remat.graph or node-link JSON")->required();
  sub->add_option("-b,--budget", command->budget,
                  "memory: 6442450944, 6GiB, 800MB, 75% (of the keep-all peak)")
      ->type_name("B");
  sub->add_option("--planner", command->request.planner, "see 'remat planners' (default: auto)")
      ->type_name("NAME");
  declare_options(*sub, command->request);
  command->effort.declare(*sub);
  command->host.declare(*sub);
  add_output(*sub, "-o,--output", command->out, "write the plan here, if it is within the budget")
      ->type_name("PLAN");
  add_output(*sub, "--layout", command->layout_out, "write the layout of the plan here")->type_name("LAYOUT");
  sub->add_flag("--json", command->json, "print one JSON object");
  sub->add_flag("--verbose", command->verbose, "also print the planner's counters and the log of `auto`");
  sub->callback([command, sub, &action] {
    const bool is_given = sub->count(spelled_for_shell("allocator", "")) > 0;
    command->asks_allocator = is_given || command->request.budget_on == Measure::kReserved;
    action = [command] { return command->run(); };
  });
}

}  // namespace remat::cli
