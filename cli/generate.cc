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

/// A flag for each option of the generator.
template <class Options>
void declare_settings(CLI::App& sub, Options& options) {
  visit_settings(options, [&](std::string name, auto& value, const std::string& description) {
    std::ostringstream standard;
    standard << value;
    std::ranges::replace(name, '_', '-');
    add_setting(sub, name, value, description)->default_str(standard.str());
  });
}

void add_random_layered(CLI::App& generate, Action& action) {
  auto options = std::make_shared<RandomLayeredOptions>();
  auto command = std::make_shared<GenerateCommand>();
  command->make = [options] { return random_layered(*options); };
  CLI::App* sub = add_kind(generate, action, "random_layered",
                           "random layered graph, as in the experiments of MOCCASIN", command);
  declare_settings(*sub, *options);
}

void add_chain(CLI::App& generate, Action& action) {
  auto options = std::make_shared<ChainOptions>();
  auto command = std::make_shared<GenerateCommand>();
  command->make = [options] { return chain(*options); };
  CLI::App* sub = add_kind(generate, action, "chain", "chain of ops with loss and backward ops", command);
  declare_settings(*sub, *options);
  sub->add_flag("--inference{false}", options->training, "forward ops only");
}

void add_random_dag(CLI::App& generate, Action& action) {
  auto options = std::make_shared<RandomDagOptions>();
  auto command = std::make_shared<GenerateCommand>();
  command->make = [options] { return random_dag(*options); };
  CLI::App* sub =
      add_kind(generate, action, "random_dag", "random graph with every feature of the model", command);
  declare_settings(*sub, *options);
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
  declare_settings(*sub, command->options);
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
