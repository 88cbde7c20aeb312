// remat largest: the largest batch, or other size, of a model that fits into a budget.
#include "remat/largest.h"

#include <iostream>
#include <map>

#include "commands.h"
#include "common.h"
#include "models.h"
#include "progress.h"
#include "remat/error.h"
#include "remat/keep_all.h"

namespace remat::cli {
namespace {

Report row_of(const SizeRow& row, const std::string& over, bool is_best) {
  const bool fits = row.fits();
  const Graph& graph = row.graphs.front();
  Report said;
  said[over] = row.size;
  said["peak"] = fits ? Report(row.peak().count()) : Report(nullptr);
  said["keep_all_peak"] = row.keep_all_peak().count();
  said["peak_lower_bound"] = row.peak_bound().count();
  said["overhead_percent"] = fits ? Report(100 * overhead(graph, row.duration())) : Report(nullptr);
  said["duration"] = fits ? Report(row.duration().count()) : Report(nullptr);
  const double per_second = graph.time_unit == "ns" ? 1e9 : 1;
  said["throughput"] = fits ? Report(row.throughput() * per_second) : Report(nullptr);
  said["status"] = to_string(row.status());
  said["best"] = is_best ? "best" : "";
  return said;
}

struct LargestCommand {
  ModelTexts texts;
  std::map<std::string, std::int64_t ModelSettings::*> sizes;  ///< that can be searched for
  std::string budget, over = "batch", order = "fixed", out;
  LargestOptions search;
  bool json = false;
  EffortOptions effort;

  int run() {
    Limits limits;
    effort.finish();
    if (budget.ends_with('%')) throw UsageError("a budget in percent would be another one for each size");
    const Bytes limit = parse_budget(budget, Bytes());
    prepare_outputs({{"-o", out}});
    search.order = parse_order(order);
    search.plan = effort.plan;
    effort.apply(limits);
    limits.set_stop(&catch_interrupts());
    PlanStore store;
    LargestResult found;
    {
      ProgressLine progress(nullptr, limit);
      progress.attach(limits);
      found = find_largest([this](std::int64_t size) { return std::vector<Graph>{graph_of(size)}; }, limit,
                           search, limits, store);
    }
    Report said = report(found, limit);
    save(found, limit, said);
    const std::string unit = texts.durations == "roofline" ? "ns" : "";
    print(said, json,
          {.time_unit = unit, .spare = {"peak_lower_bound", "keep_all_peak", "duration", "status"}});
    if (catch_interrupts()) return kInterrupted;
    return explain(found, limit);
  }

 private:
  Graph graph_of(std::int64_t size) const {
    TrainingOptions options = finish(texts);
    options.settings.*sizes.at(over) = size;
    return training_graph(options);
  }

  Report report(const LargestResult& found, Bytes limit) const {
    const auto or_null = [](std::optional<std::int64_t> size) {
      return size ? Report(*size) : Report(nullptr);
    };
    Report said;
    said["model"] = texts.options.model;
    said["over"] = over;
    said["budget"] = limit.count();
    said["largest"] = or_null(found.largest);
    said["impossible"] = or_null(found.impossible);
    said["proved"] = found.largest && found.impossible == *found.largest + search.multiple;
    said["best"] = or_null(found.best);
    said["stopped_by"] = found.stopped_by ? Report(to_string(*found.stopped_by)) : Report(nullptr);
    said["seconds"] = found.seconds;
    said["seed"] = effort.plan.seed;
    Report rows = Report::array();
    for (const SizeRow& row : found.rows) rows.push_back(row_of(row, over, row.size == found.best));
    said["sizes"] = std::move(rows);
    return said;
  }

  /// The graph of the largest size.
  void save(const LargestResult& found, Bytes, Report& said) const {
    if (out.empty() || !found.largest) return;
    write_output(out, format_graph(graph_of(*found.largest)), FileKind::kGraph);
    said["graph_file"] = out;
  }

  /// Reports why there is no answer. Returns the exit code.
  int explain(const LargestResult& found, Bytes limit) const {
    if (found.largest) return kOk;
    const std::string asked = describe_budget(budget, limit);
    const SizeRow& least = found.rows.front();
    const std::string size = over + " " + std::to_string(least.size);
    if (least.status() == Status::kInfeasible) {
      std::cerr << "remat: proved infeasible: no plan of " << size << " fits into " << asked
                << ", none goes below " << exact_bytes(least.peak_bound()) << "\n";
      return kInfeasible;
    }
    std::cerr << "remat: no plan of " << size << " within " << asked << " found, nothing proved\n";
    return kNothingFound;
  }
};

void add_model(CLI::App& largest, Action& action, const ModelInfo& model) {
  auto command = std::make_shared<LargestCommand>();
  CLI::App* sub = largest.add_subcommand(std::string(model.name), std::string(model.description));
  sub->add_option("-b,--budget", command->budget, "memory: 6442450944, 6GiB, 800MB")
      ->required()
      ->type_name("B");
  std::vector<std::string> known;
  command->sizes = searched_sizes(model);
  for (const auto& [name, size] : command->sizes) known.push_back(name);
  take_one_of(*sub->add_option("--over", command->over, "the size to search for (default: batch)"), known);
  add_whole(*sub, "--least", command->search.least, std::int64_t{1}, kMostSize, "smallest size (default: 1)");
  add_whole(*sub, "--most", command->search.most, std::int64_t{1}, kMostSize,
            "largest size (default: " + std::to_string(kMostSize) + ")");
  add_whole(*sub, "--multiple", command->search.multiple, std::int64_t{1}, kMostSize,
            "only multiples of it (default: 1)");
  add_whole(*sub, "--rows", command->search.rows, 1, 1000,
            "approximate number of sizes in the table (default: 8)");
  sub->add_option("--planner", command->search.planner, "see 'remat planners' (default: auto)")
      ->type_name("NAME");
  declare_order(*sub, command->order);
  command->effort.declare(*sub);
  declare_model(*sub, model, command->texts);
  add_output(*sub, "-o,--output", command->out, "write the graph of the largest size here")
      ->type_name("FILE");
  sub->add_flag("--json", command->json, "print one JSON object");
  sub->callback([command, &action] { action = [command] { return command->run(); }; });
}

}  // namespace

void add_largest(CLI::App& app, Action& action) {
  CLI::App* sub = app.add_subcommand("largest", "the largest batch (or other size) of a model that fits");
  for (const ModelInfo& model : models()) add_model(*sub, action, model);
  require_known_word(*sub, action, "model");
}

}  // namespace remat::cli
