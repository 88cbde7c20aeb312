// remat layout: offsets in one arena, for the buffers of a plan or of a table.
#include "remat/layout.h"

#include <iostream>

#include "commands.h"
#include "common.h"
#include "progress.h"
#include "remat/bounds.h"
#include "remat/error.h"
#include "remat/keep_all.h"
#include "remat/layout_io.h"

namespace remat::cli {
namespace {

std::string why_none(const LayoutResult& result, Bytes capacity, Bytes resident) {
  const std::string asked = exact_bytes(capacity), best = exact_bytes(result.arena + resident);
  if (result.status == Status::kInfeasible) {
    return "proved infeasible: no layout fits into " + asked + ", the bound '" + result.bound.argument +
           "' is " + exact_bytes(result.bound.arena + resident) + "; the best arena found is " + best;
  }
  return "no layout within " + asked + " found, nothing proved; the best arena found is " + best;
}

struct LayoutCommand {
  std::string input, plan, capacity, out;
  std::optional<std::int64_t> alignment;
  bool json = false, verbose = false;
  EffortOptions effort;

  int run() {
    Limits limits;  // started here, so that time limits include reading
    effort.finish();
    prepare_outputs({{"-o", out}});
    return plan.empty() ? lay_out_table(limits) : lay_out_plan(limits);
  }

 private:
  int lay_out_plan(Limits& limits) {
    const LoadedGraph loaded = load_and_warn(input);
    const Graph& graph = loaded.graph;
    const PlanRecord record = load_plan_and_warn(plan);
    if (!out.empty()) refuse_to_replace_input(out, FileKind::kLayout);
    const Plan steps = valid_plan(graph, record, plan);
    PlanBuffers buffers = plan_buffers(graph, steps, alignment.value_or(kCacheLine));
    if (!capacity.empty()) {
      buffers.problem.capacity =
          parse_budget(capacity, keep_all_peak(graph), floor_bound(graph).peak) - buffers.resident;
    }
    const LayoutResult result = make(buffers.problem, limits);
    Report extra;
    extra["resident"] = buffers.resident.count();
    extra["pool"] = result.arena.count();
    extra["peak"] = simulate(graph, steps).peak.count();
    return finish(buffers.problem, result, buffers.resident, extra, [&] {
      write_output(out, format_layout(make_layout_record(graph, steps, buffers, result)), FileKind::kLayout);
    });
  }

  int lay_out_table(Limits& limits) {
    const BufferTable table = load_buffers_and_warn(input);
    if (!out.empty()) refuse_to_replace_input(out, FileKind::kBuffers);
    LayoutProblem problem{table.buffers, alignment.value_or(1), std::nullopt};
    if (!capacity.empty()) problem.capacity = parse_capacity(capacity);
    const LayoutResult result = make(problem, limits);
    return finish(problem, result, Bytes(), Report::object(), [&] {
      write_output(out, format_buffers(table, result.offsets.raw()), FileKind::kBuffers);
    });
  }

  LayoutResult make(const LayoutProblem& problem, Limits& limits) const {
    effort.apply(limits);
    limits.set_stop(&catch_interrupts());
    LayoutOptions options;
    options.seed = effort.plan.seed;
    ProgressLine progress(nullptr, Bytes());
    progress.attach(limits);
    return of_file(input, [&] { return make_layout(problem, options, limits); });
  }

  /// Prints the result, and saves the layout if it is within the capacity. `extra` is printed after the
  /// arena.
  int finish(const LayoutProblem& problem, const LayoutResult& result, Bytes resident, Report extra,
             const std::function<void()>& save) const {
    const bool found = result.status == Status::kOptimal || result.status == Status::kFeasible;
    const Bytes live = live_peak(problem), arena = resident + result.arena;
    Report report;
    report["status"] = to_string(result.status);
    report["stopped_by"] = to_string(result.stopped_by);
    report["buffers"] = problem.buffers.size();
    report["alignment"] = problem.alignment;
    report["capacity"] = problem.capacity ? Report((*problem.capacity + resident).count()) : Report(nullptr);
    report["arena"] = found ? Report(arena.count()) : Report(nullptr);
    for (const auto& [key, value] : extra.items()) report[key] = value;
    report["live_peak"] = (resident + live).count();
    report["arena_over_live_peak"] = found && arena.count() > 0
                                         ? Report(static_cast<double>((arena - live - resident).count()) /
                                                  static_cast<double>((live + resident).count()))
                                         : Report(nullptr);
    report["arena_lower_bound"] = (resident + result.bound.arena).count();
    report["arena_bound_argument"] = result.bound.argument;
    if (!found) report["best_arena"] = arena.count();
    report["seconds"] = result.seconds;
    report["seed"] = effort.plan.seed;
    std::string message;
    if (!found) {
      message = why_none(result, *problem.capacity + resident, resident);
      if (!out.empty()) message += "; " + out + " is not written";
    } else if (!out.empty()) {
      save();
      report["layout_file"] = out;
    }
    if (json || verbose) {
      for (const auto& [name, count] : result.counters) report["counter." + name] = count;
    }
    print(report, json);
    if (!found) std::cerr << "remat: " << one_line(message) << "\n";
    return found ? kOk : result.status == Status::kInfeasible ? kInfeasible : kNothingFound;
  }
};

}  // namespace

void add_layout(CLI::App& app, Action& action) {
  auto command = std::make_shared<LayoutCommand>();
  CLI::App* sub = app.add_subcommand("layout", "offsets in one arena for a plan or a table of buffers");
  sub->add_option("INPUT", command->input,
                  "remat.graph or node-link JSON, or a CSV table with the columns id, lower, upper, size")
      ->required();
  sub->add_option("PLAN", command->plan, "remat.plan; with a graph only");
  sub->add_option("--capacity", command->capacity,
                  "find a layout within this size: 1048576, 6GiB, 75% (of the keep-all peak); for a plan it "
                  "includes the graph's inputs (default: find the smallest arena)")
      ->type_name("B");
  add_whole(*sub, "--align", command->alignment, std::int64_t{1}, kMaxCount - 1,
            "offsets are multiples of it (default: 64 for a plan, 1 for a table)");
  command->effort.declare_limits(*sub);
  add_output(*sub, "-o,--output", command->out, "write the layout here, if it is within the capacity")
      ->type_name("FILE");
  sub->add_flag("--json", command->json, "print one JSON object");
  sub->add_flag("--verbose", command->verbose, "also print the counters of the search");
  sub->callback([command, &action] { action = [command] { return command->run(); }; });
}

}  // namespace remat::cli
