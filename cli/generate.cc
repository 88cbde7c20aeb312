// remat generate: training graphs of well-known models, chains and random graphs.
#include "remat/generate.h"

#include <map>

#include "commands.h"
#include "common.h"
#include "remat/error.h"
#include "remat/keep_all.h"

namespace remat::cli {
namespace {

/// What all kinds share: where to write, and what to say.
struct GenerateCommand {
  std::string out;
  bool json = false;
  std::function<Graph()> make;

  void declare(CLI::App& sub) {
    add_output(sub, "-o,--output", out, "the remat.graph file to write")->required()->type_name("FILE");
    sub.add_flag("--json", json, "print one JSON object");
  }

  int run() const {
    require_writable_folder(out);
    const Graph graph = make();
    save_graph(graph, out);
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

  /// Pairs of ops, the second of which reads something that the first makes.
  static std::size_t count_edges(const Graph& graph) {
    std::size_t edges = 0;
    for (OpId op : graph.ops()) edges += predecessors(graph, op).size();
    return edges;
  }
};

CLI::App* add_kind(CLI::App& generate, Action& action, const std::string& name,
                   const std::string& description, const std::shared_ptr<GenerateCommand>& command) {
  CLI::App* sub = generate.add_subcommand(name, description);
  command->declare(*sub);
  sub->callback([command, &action] { action = [command] { return command->run(); }; });
  return sub;
}

/// What a setting may be is for the generator to say; here it only has to be a number.
template <class T>
CLI::Option* add_setting(CLI::App& sub, const std::string& name, T& value, const std::string& description) {
  if constexpr (std::integral<T>) {
    return add_whole(sub, "--" + name, value, std::numeric_limits<T>::min(), std::numeric_limits<T>::max(),
                     description);
  } else {
    return add_number<T>(sub, "--" + name, value, description, "a number",
                         [](T given) { return std::isfinite(given); });
  }
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
  CLI::App* sub =
      add_kind(generate, action, "random_layered", "random layered graph, as MOCCASIN measures on", command);
  setting(*sub, "nodes", options->ops, "ops, source and target included");
  setting(*sub, "width", options->width, "mean width of a layer in units of 2 sqrt(nodes)");
  setting(*sub, "layers", options->layers, "number of layers; 0: what the width gives");
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

/// Options of a model as they stand on the command line.
struct ModelTexts {
  TrainingOptions options;
  std::string granularity = "op", optimizer = "none", durations = "unit", dtype = "fp32", device;
};

TrainingOptions finish(const ModelTexts& texts) {
  static const std::map<std::string, Granularity> kGranularities{
      {"op", Granularity::kOp}, {"layer", Granularity::kLayer}, {"primitive", Granularity::kPrimitive}};
  static const std::map<std::string, Optimizer> kOptimizers{{"none", Optimizer::kNone},
                                                            {"sgd", Optimizer::kSgd},
                                                            {"momentum", Optimizer::kMomentum},
                                                            {"adam", Optimizer::kAdam}};
  TrainingOptions o = texts.options;
  o.granularity = kGranularities.at(texts.granularity);
  o.optimizer = kOptimizers.at(texts.optimizer);
  if (texts.dtype == "bf16") o.dtype = DataType::kBf16;
  if (texts.durations == "roofline") {
    o.device = parse_device(texts.device.empty() ? "a100" : texts.device);
  } else if (!texts.device.empty()) {
    throw UsageError("--device says how long ops take with --durations roofline only");
  }
  return o;
}

template <class T>
void model_setting(CLI::App& sub, const std::string& name, T& value, T standard,
                   const std::string& description) {
  if (standard == T(-1)) return;
  std::ostringstream text;
  text << description << " [" << standard << "]";
  add_setting(sub, name, value, text.str());
}

void add_model(CLI::App& generate, Action& action, const ModelInfo& model) {
  auto texts = std::make_shared<ModelTexts>();
  auto command = std::make_shared<GenerateCommand>();
  texts->options.model = model.name;
  command->make = [texts] { return training_graph(finish(*texts)); };
  CLI::App* sub = add_kind(generate, action, std::string(model.name),
                           "training step: " + std::string(model.description), command);
  if (model.variants.size() > 1) {
    std::vector<std::string> names;
    for (const ModelInfo::Variant& v : model.variants) {
      if (!v.name.empty()) names.emplace_back(v.name);
    }
    sub->add_option("--variant", texts->options.variant, "settings to start from")
        ->check(CLI::IsMember(names));
  }
  ModelSettings& s = texts->options.settings;
  const ModelSettings& standard = model.variants.front().settings;
  model_setting(*sub, "batch", s.batch, standard.batch, "samples");
  model_setting(*sub, "resolution", s.resolution, standard.resolution, "height and width of the images");
  model_setting(*sub, "sequence", s.sequence, standard.sequence, "tokens of a sample");
  model_setting(*sub, "depth", s.depth, standard.depth, "depth");
  model_setting(*sub, "width", s.width, standard.width, "width");
  model_setting(*sub, "heads", s.heads, standard.heads, model.name == "fno" ? "modes" : "attention heads");
  model_setting(*sub, "classes", s.classes, standard.classes, "classes, or channels of the output");
  model_setting(*sub, "vocabulary", s.vocabulary, standard.vocabulary, "tokens known");
  model_setting(*sub, "dropout", s.dropout, standard.dropout, "dropout rate");
  sub->add_option("--granularity", texts->granularity, "op, layer or primitive")
      ->check(CLI::IsMember({"op", "layer", "primitive"}))
      ->capture_default_str();
  sub->add_option("--optimizer", texts->optimizer, "none, sgd, momentum or adam")
      ->check(CLI::IsMember({"none", "sgd", "momentum", "adam"}))
      ->capture_default_str();
  sub->add_option("--dtype", texts->dtype, "fp32 or bf16 (two bytes, tensor cores)")
      ->check(CLI::IsMember({"fp32", "bf16"}))
      ->capture_default_str();
  sub->add_option("--durations", texts->durations, "unit or roofline (nanoseconds)")
      ->check(CLI::IsMember({"unit", "roofline"}))
      ->capture_default_str();
  sub->add_option("--device", texts->device,
                  "cpu, p100, v100, a100, h100, h200, or flops=F,bandwidth=B,launch=L [a100]");
  sub->add_flag("--no-random-recompute{false}", texts->options.random_recomputable,
                "ops that draw random numbers run once");
}

[[noreturn]] void refuse_kind(const CLI::App& generate) {
  std::string known;
  for (const CLI::App* kind : generate.get_subcommands(nullptr))
    known += (known.empty() ? "" : ", ") + kind->get_name();
  const std::vector<std::string> rest = generate.remaining();
  throw UsageError(
      (rest.empty() ? "generate needs a KIND" : "nothing to generate is called '" + rest.front() + "'") +
      std::string("; there are ") + known);
}

}  // namespace

void add_generate(CLI::App& app, Action& action) {
  CLI::App* sub =
      app.add_subcommand("generate", "make a graph: training steps of models, random layered graphs, chains");
  add_random_layered(*sub, action);
  add_chain(*sub, action);
  add_random_dag(*sub, action);
  for (const ModelInfo& model : models()) add_model(*sub, action, model);
  // Without this an unknown kind would be answered by "a subcommand is required".
  sub->require_subcommand(0, 1);
  sub->allow_extras();
  sub->callback([sub, &action] {
    if (sub->get_subcommands().empty()) action = [sub]() -> int { refuse_kind(*sub); };
  });
}

}  // namespace remat::cli
