// remat generate: training graphs of well-known models, chains and random graphs; tables of buffers.
#include "remat/generate.h"

#include "commands.h"
#include "common.h"
#include "models.h"
#include "remat/error.h"
#include "remat/keep_all.h"
#include "remat/layout_io.h"

namespace remat::cli {
namespace {

/// Shared by all kinds: the output file, and the report.
struct GenerateCommand {
  std::string out;
  bool json = false;
  std::function<Graph()> make;

  void declare(CLI::App& sub) {
    add_output(sub, "-o,--output", out, "the remat.graph file to write")->required()->type_name("FILE");
    sub.add_flag("--json", json, "print one JSON object");
  }

  int run() const {
    prepare_outputs({{"-o", out}});
    const Graph graph = make();
    write_output(out, format_graph(graph), FileKind::kGraph);
    print(Report{{"graph", graph.name},
                 {"output", out},
                 {"ops", graph.num_ops()},
                 {"values", graph.num_values()},
                 {"edges", count_edges(graph)},
                 {"resident", graph.resident.count()},
                 {"keep_all_peak", keep_all_peak(graph).count()},
                 {"base_duration", graph.base_duration.count()}},
          json);
    return kOk;
  }
};

CLI::App* add_kind(CLI::App& generate, Action& action, const std::string& name,
                   const std::string& description, const std::shared_ptr<GenerateCommand>& command) {
  CLI::App* sub = generate.add_subcommand(name, description);
  command->declare(*sub);
  sub->callback([command, &action] { action = [command] { return command->run(); }; });
  return sub;
}

template <class T>
void setting(CLI::App& sub, const std::string& name, T& value, const std::string& description) {
  std::ostringstream standard;
  standard << value;
  add_setting(sub, name, value, description)->default_str(standard.str());
}

void add_random_layered(CLI::App& generate, Action& action) {
  auto options = std::make_shared<RandomLayeredOptions>();
  auto command = std::make_shared<GenerateCommand>();
  command->make = [options] { return random_layered(*options); };
  CLI::App* sub = add_kind(generate, action, "random_layered",
                           "random layered graph, as in the experiments of MOCCASIN", command);
  setting(*sub, "nodes", options->ops, "ops, source and target included");
  setting(*sub, "width", options->width, "mean width of a layer in units of 2 sqrt(nodes)");
  setting(*sub, "layers", options->layers, "number of layers; 0: derived from the width");
  setting(*sub, "width-variability", options->width_variability, "widths vary by this share of the mean");
  setting(*sub, "edge-density", options->edge_density,
          "0: one neighbour each; 1: all pairs of neighbouring layers");
  setting(*sub, "skip-density", options->skip_density, "share of edges that skip layers");
  setting(*sub, "seed", options->seed, "seed");
}

void add_chain(CLI::App& generate, Action& action) {
  auto options = std::make_shared<ChainOptions>();
  auto command = std::make_shared<GenerateCommand>();
  command->make = [options] { return chain(*options); };
  CLI::App* sub = add_kind(generate, action, "chain", "chain of ops with loss and backward ops", command);
  setting(*sub, "length", options->length, "forward ops");
  setting(*sub, "bytes", options->bytes, "bytes of every value");
  setting(*sub, "duration", options->duration, "duration of a forward op");
  sub->add_flag("--inference{false}", options->training, "forward ops only");
}

void add_random_dag(CLI::App& generate, Action& action) {
  auto options = std::make_shared<RandomDagOptions>();
  auto command = std::make_shared<GenerateCommand>();
  command->make = [options] { return random_dag(*options); };
  CLI::App* sub =
      add_kind(generate, action, "random_dag", "random graph with every feature of the model", command);
  setting(*sub, "nodes", options->ops, "ops");
  setting(*sub, "inputs", options->inputs, "graph inputs");
  setting(*sub, "reads", options->reads, "values read by an op on average");
  setting(*sub, "reach", options->reach, "an op reads among the last REACH values; 0: all");
  setting(*sub, "max-outputs", options->max_outputs, "most values made by an op");
  setting(*sub, "max-bytes", options->max_bytes, "largest value");
  setting(*sub, "max-duration", options->max_duration, "longest op");
  setting(*sub, "workspace-share", options->workspace_share, "share of ops with a workspace");
  setting(*sub, "never-share", options->never_share, "share of ops that must not run twice");
  setting(*sub, "after-share", options->after_share, "share of ops with a soft dependency");
  setting(*sub, "kept-share", options->kept_share, "share of values kept");
  setting(*sub, "over-share", options->over_share, "share of outputs that may be written over an input");
  setting(*sub, "random-share", options->random_share, "share of ops that draw random numbers");
  setting(*sub, "seed", options->seed, "seed");
}

int make_buffers(const RandomBuffersOptions& options, const std::string& out, bool json) {
  prepare_outputs({{"-o", out}});
  const LayoutProblem problem{random_buffers(options), 1, std::nullopt};
  write_output(out, format_buffers(problem.buffers), FileKind::kBuffers);
  print(
      Report{{"output", out}, {"buffers", problem.buffers.size()}, {"live_peak", live_peak(problem).count()}},
      json);
  return kOk;
}

void add_buffers(CLI::App& generate, Action& action) {
  struct Command {
    RandomBuffersOptions options;
    std::string out;
    bool json = false;
  };
  auto command = std::make_shared<Command>();
  CLI::App* sub =
      generate.add_subcommand("buffers", "no graph, but a table of buffers for remat layout, with phases");
  add_output(*sub, "-o,--output", command->out, "the CSV table to write")->required()->type_name("FILE");
  sub->add_flag("--json", command->json, "print one JSON object");
  RandomBuffersOptions& options = command->options;
  setting(*sub, "count", options.count, "buffers, and steps of time");
  setting(*sub, "phases", options.phases, "number of phases; short lives stay within one");
  setting(*sub, "life", options.life, "mean of a short life, in steps");
  setting(*sub, "long-share", options.long_share, "share of buffers that live for a phase or longer");
  setting(*sub, "max-bytes", options.max_bytes, "the largest size");
  setting(*sub, "seed", options.seed, "seed");
  sub->callback([command, &action] {
    action = [command] { return make_buffers(command->options, command->out, command->json); };
  });
}

void add_generator(CLI::App& generate, Action& action, const ModelInfo& model) {
  auto texts = std::make_shared<ModelTexts>();
  auto command = std::make_shared<GenerateCommand>();
  command->make = [texts] { return training_graph(finish(*texts)); };
  CLI::App* sub = add_kind(generate, action, std::string(model.name),
                           "training step: " + std::string(model.description), command);
  declare_model(*sub, model, *texts);
}

}  // namespace

void add_generate(CLI::App& app, Action& action) {
  CLI::App* sub =
      app.add_subcommand("generate", "make a graph: training steps of models, random layered graphs, chains");
  add_random_layered(*sub, action);
  add_chain(*sub, action);
  add_random_dag(*sub, action);
  add_buffers(*sub, action);
  for (const ModelInfo& model : models()) add_generator(*sub, action, model);
  require_known_word(*sub, action, "kind of graph");
}

}  // namespace remat::cli
