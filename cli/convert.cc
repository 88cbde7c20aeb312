// remat convert: any graph file that is read, written as remat.graph.
#include "commands.h"
#include "common.h"

namespace remat::cli {
namespace {

struct ConvertCommand {
  std::string in, out;
  bool json = false;

  int run() const {
    prepare_outputs({{"-o", out}});
    const LoadedGraph loaded = load_and_warn(in);
    write_output(out, format_graph(loaded.graph), FileKind::kGraph);
    print(Report{{"input", in},
                 {"input_format", to_string(loaded.format)},
                 {"output", out},
                 {"output_format", to_string(GraphFormat::kRematGraph)},
                 {"ops", loaded.graph.num_ops()},
                 {"values", loaded.graph.num_values()}},
          json);
    return kOk;
  }
};

}  // namespace

void add_convert(CLI::App& app, Action& action) {
  auto command = std::make_shared<ConvertCommand>();
  CLI::App* sub =
      app.add_subcommand("convert", "write a graph file as remat.graph; the input's format is detected");
  sub->add_option("IN", command->in, "remat.graph or node-link JSON")->required();
  add_output(*sub, "-o,--output", command->out, "the remat.graph file to write")
      ->required()
      ->type_name("OUT");
  sub->add_flag("--json", command->json, "print one JSON object");
  sub->callback([command, &action] { action = [command] { return command->run(); }; });
}

}  // namespace remat::cli
