// remat partition: the hierarchy that the planner hiremate would use.
#include <algorithm>

#include "commands.h"
#include "common.h"
#include "remat/hiremate.h"

namespace remat::cli {
namespace {

/// The groups of the first level.
Report top_groups(const Graph& g, const hiremate::Partition& partition) {
  Report rows = Report::array();
  for (hiremate::GroupId group : partition.groups[partition.root].members) {
    const std::vector<OpId> layers = hiremate::layers_of(partition, group);
    const auto [first, last] = std::minmax_element(layers.begin(), layers.end());
    rows.push_back({{"layers", layers.size()},
                    {"members", std::max<std::size_t>(1, partition.groups[group].members.size())},
                    {"ops", std::to_string(first->index()) + ".." + std::to_string(last->index())},
                    {"first", describe(g, *first)},
                    {"module", g.op_module[*first]}});
  }
  return rows;
}

struct PartitionCommand {
  std::string graph, out;
  std::vector<std::string> set;
  bool json = false;

  int run() const {
    prepare_outputs({{"-o", out}});
    const LoadedGraph loaded = load_and_warn(graph);
    const hiremate::Settings settings = hiremate::settings_of({.set = parse_set(set)});
    const hiremate::TrainingGraph training = hiremate::pair_layers(loaded.graph);
    Limits limits;
    limits.set_stop(&catch_interrupts());
    const hiremate::Partition partition = hiremate::partition(training, settings, limits);
    const hiremate::PartitionSummary summary = hiremate::summarize(training, partition);
    Report report;
    report["graph"] = loaded.graph.name;
    report["ops"] = loaded.graph.num_ops();
    report["partitioner"] = settings.partitioner->name();
    report["layers"] = training.num_layers();
    report["levels"] = summary.levels;
    report["groups"] = summary.groups;
    report["distinct_groups"] = summary.distinct;
    report["largest_group"] = summary.largest;
    report["top_groups"] = top_groups(loaded.graph, partition);
    if (!out.empty()) {
      write_output(out, hiremate::to_json(training, partition) + "\n");
      report["partition_file"] = out;
    }
    print(report, json);
    return kOk;
  }
};

}  // namespace

void add_partition(CLI::App& app, Action& action) {
  auto command = std::make_shared<PartitionCommand>();
  CLI::App* sub = app.add_subcommand("partition", "the hierarchy that the planner hiremate would use");
  sub->add_option("GRAPH", command->graph, "remat.graph or node-link JSON")->required();
  sub->add_option("--set", command->set, "option of hiremate, e.g. most_lower=12")->type_name("KEY=VALUE");
  add_output(*sub, "-o,--output", command->out, "write it (remat.partition JSON)")->type_name("FILE");
  sub->add_flag("--json", command->json, "print one JSON object");
  sub->callback([command, &action] { action = [command] { return command->run(); }; });
}

}  // namespace remat::cli
