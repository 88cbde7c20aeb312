// remat.generate: graphs by name, with the settings of the command line.
#include "remat/generate.h"

#include "bindings.h"
#include "errors.h"
#include "generate.h"
#include "remat/words.h"

namespace remat::python {
namespace {

/// Settings by name, each taken once; unknown ones are an error.
class Settings {
 public:
  Settings(std::string kind, nb::dict given) : kind_(std::move(kind)) {
    for (auto [key, value] : given) left_[to_text(key, "setting")] = nb::borrow(value);
  }

  void take(const std::string& name, std::int64_t& into) {
    take(name, [&](nb::handle value, const std::string& what) { into = to_integer(value, what); });
  }
  void take(const std::string& name, std::uint64_t& into) {
    take(name, [&](nb::handle value, const std::string& what) {
      const std::int64_t number = to_integer(value, what);
      if (number < 0) throw UsageError(what + ": " + std::to_string(number) + " is negative");
      into = static_cast<std::uint64_t>(number);
    });
  }
  void take(const std::string& name, double& into) {
    take(name, [&](nb::handle value, const std::string& what) {
      if (PyBool_Check(value.ptr()) || !nb::try_cast(value, into))
        throw UsageError(what + " is not a number");
    });
  }
  void take(const std::string& name, bool& into) {
    take(name, [&](nb::handle value, const std::string& what) {
      if (!PyBool_Check(value.ptr())) throw UsageError(what + " is neither True nor False");
      into = value.is(nb::handle(Py_True));
    });
  }
  void take(const std::string& name, std::string& into) {
    take(name, [&](nb::handle value, const std::string& what) { into = to_text(value, what); });
  }
  /// One of `words`, as its index.
  template <class Choice>
  void take(const std::string& name, Choice& into, std::initializer_list<std::string_view> words) {
    take(name, [&](nb::handle value, const std::string& what) {
      into = static_cast<Choice>(choose(to_text(value, what), words, what));
    });
  }

  void finish() const {
    if (left_.empty()) return;
    throw UsageError(kind_ + " has no setting '" + left_.begin()->first + "'; it has: " + listed(known_));
  }

 private:
  template <class Read>
    requires std::invocable<Read, nb::handle, const std::string&>
  void take(const std::string& name, Read read) {
    known_.push_back(name);
    const auto found = left_.find(name);
    if (found == left_.end()) return;
    read(found->second, kind_ + ": " + name);
    left_.erase(found);
  }

  std::string kind_;
  std::map<std::string, nb::object> left_;
  std::vector<std::string> known_;
};

Graph make_random_layered(Settings given) {
  RandomLayeredOptions o;
  given.take("nodes", o.ops);
  given.take("width", o.width);
  given.take("layers", o.layers);
  given.take("width_variability", o.width_variability);
  given.take("edge_density", o.edge_density);
  given.take("skip_density", o.skip_density);
  given.take("seed", o.seed);
  given.finish();
  return random_layered(o);
}

Graph make_chain(Settings given) {
  ChainOptions o;
  bool inference = false;
  given.take("length", o.length);
  given.take("bytes", o.bytes);
  given.take("duration", o.duration);
  given.take("inference", inference);
  given.finish();
  o.training = !inference;
  return chain(o);
}

Graph make_random_dag(Settings given) {
  RandomDagOptions o;
  given.take("nodes", o.ops);
  given.take("inputs", o.inputs);
  given.take("reads", o.reads);
  given.take("reach", o.reach);
  given.take("max_outputs", o.max_outputs);
  given.take("max_bytes", o.max_bytes);
  given.take("max_duration", o.max_duration);
  given.take("workspace_share", o.workspace_share);
  given.take("never_share", o.never_share);
  given.take("after_share", o.after_share);
  given.take("kept_share", o.kept_share);
  given.take("over_share", o.over_share);
  given.take("random_share", o.random_share);
  given.take("seed", o.seed);
  given.finish();
  return random_dag(o);
}

/// lower, upper and size of each.
using Columns = std::tuple<std::vector<std::int64_t>, std::vector<std::int64_t>, std::vector<std::int64_t>>;

Columns generate_buffers(nb::dict given) {
  return with_fault<UsageError>([&] {
    RandomBuffersOptions o;
    Settings settings("buffers", given);
    settings.take("count", o.count);
    settings.take("phases", o.phases);
    settings.take("life", o.life);
    settings.take("long_share", o.long_share);
    settings.take("max_bytes", o.max_bytes);
    settings.take("seed", o.seed);
    settings.finish();
    Columns columns;
    auto& [lower, upper, size] = columns;
    const auto buffers = random_buffers(o);
    for (const Buffer& buffer : buffers.raw()) {
      lower.push_back(buffer.first);
      upper.push_back(buffer.end);
      size.push_back(buffer.size.count());
    }
    return columns;
  });
}

void take_sizes(Settings& given, const ModelSettings& standard, ModelSettings& sizes) {
  const auto size = [&](const char* name, auto ModelSettings::* setting) {
    if (standard.*setting != -1) given.take(name, sizes.*setting);
  };
  size("batch", &ModelSettings::batch);
  size("resolution", &ModelSettings::resolution);
  size("sequence", &ModelSettings::sequence);
  size("depth", &ModelSettings::depth);
  size("width", &ModelSettings::width);
  size("heads", &ModelSettings::heads);
  size("classes", &ModelSettings::classes);
  size("vocabulary", &ModelSettings::vocabulary);
  size("dropout", &ModelSettings::dropout);
}

Graph generate(const std::string& kind, nb::dict given) {
  return with_fault<UsageError>([&] {
    Settings settings(kind, given);
    if (kind == "random_layered") return make_random_layered(std::move(settings));
    if (kind == "chain") return make_chain(std::move(settings));
    if (kind == "random_dag") return make_random_dag(std::move(settings));
    return training_graph(training_options(kind, given));
  });
}

}  // namespace

TrainingOptions training_options(const std::string& model, nb::dict given) {
  std::vector<std::string> known{"random_layered", "chain", "random_dag"};
  const ModelInfo* info = nullptr;
  for (const ModelInfo& one : models()) {
    known.emplace_back(one.name);
    if (one.name == model) info = &one;
  }
  if (info == nullptr) throw UsageError(unknown_word("kind of graph", model, known));
  TrainingOptions o;
  o.model = model;
  Settings settings(model, given);
  take_sizes(settings, info->variants.front().settings, o.settings);
  std::string device;
  bool has_roofline = false;
  if (info->variants.size() > 1) settings.take("variant", o.variant);
  settings.take("granularity", o.granularity, {"op", "layer", "primitive"});
  settings.take("optimizer", o.optimizer, {"none", "sgd", "momentum", "adam"});
  settings.take("dtype", o.dtype, {"fp32", "bf16"});
  settings.take("durations", has_roofline, {"unit", "roofline"});
  settings.take("device", device);
  settings.take("random_recompute", o.random_recomputable);
  settings.finish();
  if (!has_roofline && !device.empty()) {
    throw UsageError("device says how long ops take with durations='roofline' only");
  }
  if (has_roofline) o.device = parse_device(device.empty() ? "a100" : device);
  return o;
}

void bind_generate(nb::module_& m) {
  m.def(
      "models",
      [] {
        std::vector<std::pair<std::string, std::string>> all;
        for (const ModelInfo& model : models()) all.emplace_back(model.name, model.description);
        return all;
      },
      "Names and descriptions of the models that `generate` knows.");
  m.def("generate", generate, nb::arg("kind"), nb::arg("settings"),
        nb::sig("def generate(kind: str, settings: dict[str, typing.Any]) -> Graph"), "See remat.generate.");
  m.def("generate_buffers", generate_buffers, nb::arg("settings"),
        nb::sig("def generate_buffers(settings: dict[str, typing.Any]) -> "
                "tuple[list[int], list[int], list[int]]"),
        "See remat.generate_buffers.");
}

}  // namespace remat::python
