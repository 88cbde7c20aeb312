// remat pipeline: where to cut a model into stages, and what each recomputes.
#include "remat/pipeline.h"

#include <deque>
#include <iostream>

#include "commands.h"
#include "common.h"
#include "progress.h"
#include "remat/error.h"

namespace remat::cli {
namespace {

Report stage_row(const PipelineResult& result, const PipelineStage& stage) {
  int again = 0;
  for (int b = stage.first; b < stage.last; ++b) {
    const auto& curve =
        result.curves[static_cast<std::size_t>(result.blocks[static_cast<std::size_t>(b)].curve)];
    again += curve.choices[static_cast<std::size_t>(stage.choices[static_cast<std::size_t>(b - stage.first)])]
                 .extra > Duration();
  }
  const double plain = static_cast<double>((stage.forward + stage.backward).count());
  Report row;
  row["stage"] = stage.device;
  if (stage.chunk > 0 || result.plan->stages.back().chunk > 0) row["chunk"] = stage.chunk;
  row["blocks"] = std::to_string(stage.first) + ".." + std::to_string(stage.last - 1);
  row["in_flight"] = stage.in_flight;
  row["held"] = stage.held.count();
  row["saved"] = stage.saved.count();
  row["peak"] = stage.peak.count();
  row["duration"] = stage.duration().count();
  row["overhead_percent"] = plain > 0 ? 100 * static_cast<double>(stage.recomputed.count()) / plain : 0.0;
  row["recomputing"] = again;
  return row;
}

Report plan_row(const std::string& name, const std::optional<PipelinePlan>& plan, const PipelinePlan& best) {
  Report row;
  row["plan"] = name;
  row["slowest"] = plan ? Report(plan->slowest.count()) : Report(nullptr);
  row["duration"] = plan ? Report(plan->duration.count()) : Report(nullptr);
  row["bubble_percent"] = plan ? Report(100 * plan->bubble) : Report(nullptr);
  row["ratio"] =
      plan ? Report(static_cast<double>(plan->duration.count()) / static_cast<double>(best.duration.count()))
           : Report(nullptr);
  return row;
}

Report policies(const PipelineResult& result, const std::vector<PipelinePart>& parts) {
  Report stages = Report::array();
  for (const PipelineStage& stage : result.plan->stages) {
    Report blocks = Report::array();
    for (const BlockPolicy& policy : policies_of(result, parts, stage)) {
      Report save = Report::object();
      for (const auto& [kind, calls] : policy.saved) save[kind] = calls;
      blocks.push_back({{"name", policy.name}, {"runs_again", policy.runs_again}, {"save", std::move(save)}});
    }
    stages.push_back({{"stage", stage.device},
                      {"chunk", stage.chunk},
                      {"first", stage.first},
                      {"last", stage.last},
                      {"in_flight", stage.in_flight},
                      {"saved", stage.saved.count()},
                      {"peak", stage.peak.count()},
                      {"blocks", std::move(blocks)}});
  }
  return {{"format", "remat.pipeline"}, {"version", 1}, {"stages", std::move(stages)}};
}

struct PipelineCommand {
  std::vector<std::string> graphs;
  std::string budget, schedule = "1f1b", executor = "saved", cuts = "layers", out;
  PipelineOptions options;
  bool json = false;
  EffortOptions effort;

  int run() {
    Limits limits;
    effort.finish();
    if (budget.ends_with('%')) throw UsageError("a budget in percent would be another one for each stage");
    options.budget = parse_budget(budget, Bytes());
    options.schedule = parse_schedule(schedule);
    options.executor = parse_pipeline_executor(executor);
    options.whole_layers = cuts == "layers";
    if (options.schedule == Schedule::kInterleaved && options.chunks == 1) options.chunks = 2;
    prepare_outputs({{"-o", out}});
    const std::vector<PipelinePart> parts = load();
    effort.apply(limits);
    limits.set_stop(&catch_interrupts());
    const PipelineResult result = plan_pipeline(parts, options, limits);
    Report said = report(result);
    if (!out.empty() && result.plan) {
      write_output(out, policies(result, parts).dump(1) + "\n");
      said["policies"] = out;
    }
    print(said, json, {.time_unit = std::string(parts.front().graph->time_unit), .spare = {"saved", "held"}});
    return explain(result);
  }

 private:
  /// "GRAPH" or "GRAPH*COUNT".
  std::vector<PipelinePart> load() {
    std::vector<PipelinePart> parts;
    for (const std::string& text : graphs) {
      PipelinePart part;
      std::string path = text;
      if (const auto star = text.rfind('*'); star != std::string::npos) {
        const char *begin = text.data() + star + 1, *end = text.data() + text.size();
        const auto [at, error] = std::from_chars(begin, end, part.count);
        if (error != std::errc() || at != end || part.count < 1) {
          throw UsageError("'" + text + "': what follows the * is not a count");
        }
        path = text.substr(0, star);
      }
      loaded_.push_back(load_and_warn(path));
      part.graph = &loaded_.back().graph;
      parts.push_back(part);
    }
    return parts;
  }

  Report report(const PipelineResult& result) const {
    Report said;
    said["status"] = to_string(result.status);
    said["stopped_by"] = result.stopped_by ? Report(to_string(*result.stopped_by)) : Report(nullptr);
    said["schedule"] = schedule;
    said["microbatches"] = options.microbatches;
    said["budget"] = options.budget.count();
    said["blocks"] = result.blocks.size();
    said["kinds_of_blocks"] = result.curves.size();
    if (result.least_budget) said["least_budget"] = result.least_budget->count();
    said["seconds"] = result.seconds;
    if (!result.plan) return said;
    Report rows = Report::array(), beside = Report::array();
    for (const PipelineStage& stage : result.plan->stages) rows.push_back(stage_row(result, stage));
    beside.push_back(plan_row("this", result.plan, *result.plan));
    beside.push_back(plan_row("uniform cuts, own choices", result.uniform_own, *result.plan));
    beside.push_back(plan_row("uniform cuts, one choice", result.uniform_same, *result.plan));
    beside.push_back(plan_row("uniform cuts, all recomputed", result.uniform_full, *result.plan));
    said["stages"] = std::move(rows);
    said["plans"] = std::move(beside);
    return said;
  }

  /// Reports why there is no plan. Returns the exit code.
  int explain(const PipelineResult& result) const {
    if (result.plan) return kOk;
    const std::string asked = describe_budget(budget, options.budget);
    if (result.status == Status::kInfeasible) {
      std::cerr << "remat: proved infeasible: no cuts and choices fit into " << asked << ": "
                << result.reason;
      if (result.least_budget) std::cerr << "; the least budget is " << exact_bytes(*result.least_budget);
      std::cerr << "\n";
      return kInfeasible;
    }
    std::cerr << "remat: " << result.reason << " (" << asked << ")\n";
    return kNothingFound;
  }

  std::deque<LoadedGraph> loaded_;
};

}  // namespace

void add_pipeline(CLI::App& app, Action& action) {
  auto command = std::make_shared<PipelineCommand>();
  CLI::App* sub =
      app.add_subcommand("pipeline", "where to cut a model into stages, and what each recomputes");
  sub->add_option(
         "GRAPH", command->graphs,
         "training steps of one micro-batch of a model, or of its parts in sequence; GRAPH*N stands for "
         "N in a row")
      ->required();
  sub->add_option("-b,--budget", command->budget, "memory of each stage: 40GiB")->required()->type_name("B");
  add_whole(*sub, "--stages", command->options.stages, 1, 1024, "devices (default: 2)");
  add_whole(*sub, "--microbatches", command->options.microbatches, 1, 1 << 16, "of a step (default: 8)");
  sub->add_option("--schedule", command->schedule, "1f1b or interleaved (default: 1f1b)");
  add_whole(*sub, "--chunks", command->options.chunks, 1, 64, "of each stage, interleaved (default: 2)");
  sub->add_option(
      "--executor", command->executor,
      "saved: any set of results is saved; checkpoint: a block runs again as a whole but for what it "
      "saves (default: saved)");
  take_one_of(*sub->add_option("--cuts", command->cuts,
                               "layers: between numbered modules; all: wherever one value passes"),
              {"layers", "all"});
  sub->add_option("--data", command->options.data, "graph input that comes with each micro-batch")
      ->type_name("NAME");
  add_whole(
      *sub, "--state", command->options.state_per_gradient, 0, 1024,
      "bytes of optimizer state per byte of gradients, beside what updates in the graph read (default: 0)");
  command->effort.declare_limits(*sub);
  add_output(*sub, "-o,--output", command->out, "write cuts and policies of blocks here (JSON)")
      ->type_name("FILE");
  sub->add_flag("--json", command->json, "print one JSON object");
  sub->callback([command, &action] { action = [command] { return command->run(); }; });
}

}  // namespace remat::cli
