// remat convert: reads a graph file and writes it as remat.graph. The Python package reads other programs'
// formats, with the parsers of their own packages.
#include <algorithm>
#include <filesystem>

#include "commands.h"
#include "common.h"
#include "python.h"
#include "remat/error.h"
#include "remat/generate.h"

namespace remat::cli {
namespace {

struct ConvertCommand {
  std::string in, out, from, device;
  std::vector<std::string> dims;
  bool json = false;

  int run() const {
    prepare_outputs({{"-o", out}});
    const auto read = load();
    if (!read) return kFailure;
    const auto& [loaded, format] = *read;
    write_output(out, format_graph(loaded.graph), FileKind::kGraph);
    print(Report{{"input", in},
                 {"input_format", format},
                 {"output", out},
                 {"output_format", to_string(GraphFormat::kRematGraph)},
                 {"ops", loaded.graph.num_ops()},
                 {"values", loaded.graph.num_values()}},
          json);
    return kOk;
  }

 private:
  /// True for files that the Python package reads. JSON is read here under any name, and so is a file with
  /// neither a `{` nor a known ending.
  bool is_for_python() const {
    if (!from.empty()) return from != "json";
    const std::string kind = std::filesystem::path(in).extension();
    std::error_code error;
    if (kind.empty() || kind == ".json" || !std::filesystem::is_regular_file(in, error)) return false;
    const std::string text = read_file(in);
    const std::size_t begin = text.find_first_not_of(" \t\r\n");
    return begin == std::string::npos || text[begin] != '{';
  }

  /// The graph, and the format of its file.
  std::optional<std::pair<LoadedGraph, std::string>> load() const {
    if (!is_for_python()) {
      if (!device.empty() || !dims.empty()) {
        throw UsageError("--device and --dim are for files that are not JSON");
      }
      LoadedGraph loaded = load_and_warn(in);
      std::string format(to_string(loaded.format));
      return std::pair{std::move(loaded), std::move(format)};
    }
    std::vector<std::string> words{in};
    if (!from.empty()) words.push_back("--from=" + from);
    if (!device.empty()) {
      parse_device(device);
      words.push_back("--device=" + device);
    }
    for (const std::string& dim : dims) words.push_back("--dim=" + dim);
    const auto said = python_output("converters", words);
    if (!said) return std::nullopt;
    const std::size_t line = std::min(said->find('\n'), said->size());
    return std::pair{parse_graph(std::string_view(*said).substr(line), in), said->substr(0, line)};
  }
};

}  // namespace

void add_convert(CLI::App& app, Action& action) {
  auto command = std::make_shared<ConvertCommand>();
  CLI::App* sub =
      app.add_subcommand("convert", "write a graph file as remat.graph; the input's format is detected");
  sub->add_option("IN", command->in,
                  "remat.graph or node-link JSON; ONNX, DOT, StableHLO, exported programs, FX (Python)")
      ->required();
  add_output(*sub, "-o,--output", command->out, "the remat.graph file to write")
      ->required()
      ->type_name("OUT");
  sub->add_option("--from", command->from, "the input's format, if its name does not tell")
      ->type_name("FORMAT");
  sub->add_option(
         "--device", command->device,
         "device of the durations: cpu, p100, v100, a100, h100, h200, or flops=F,bandwidth=B,launch=L "
         "(default: a100)")
      ->type_name("D");
  sub->add_option("--dim", command->dims, "the size of a dimension that has a name alone, may be repeated")
      ->type_name("NAME=N")
      ->take_all();
  sub->add_flag("--json", command->json, "print one JSON object");
  sub->callback([command, &action] { action = [command] { return command->run(); }; });
}

}  // namespace remat::cli
