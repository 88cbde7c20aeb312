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

template <class Options>
Options options_of(Settings& given) {
  Options options;
  visit_settings(options, [&](const char* name, auto& value, const char*) { given.take(name, value); });
  return options;
}

Graph make_chain(Settings& given) {
  ChainOptions options = options_of<ChainOptions>(given);
  bool inference = false;
  given.take("inference", inference);
  given.finish();
  options.training = !inference;
  return chain(options);
}

template <class Options>
Graph make(Settings& given, Graph (*generator)(const Options&)) {
  const Options options = options_of<Options>(given);
  given.finish();
  return generator(options);
}

/// lower, upper and size of each.
using Columns = std::tuple<std::vector<std::int64_t>, std::vector<std::int64_t>, std::vector<std::int64_t>>;

Columns generate_buffers(nb::dict given) {
  return with_fault<UsageError>([&] {
    Settings settings("buffers", given);
    const auto options = options_of<RandomBuffersOptions>(settings);
    settings.finish();
    Columns columns;
    auto& [lower, upper, size] = columns;
    const auto buffers = random_buffers(options);
    for (const Buffer& buffer : buffers.raw()) {
      lower.push_back(buffer.first);
      upper.push_back(buffer.end);
      size.push_back(buffer.size.count());
    }
    return columns;
  });
}

void take_sizes(Settings& given, const ModelSettings& standard, ModelSettings& sizes) {
  visit_sizes([&](const char* name, auto size, const char*) {
    if (standard.*size != -1) given.take(name, sizes.*size);
  });
}

Graph generate(const std::string& kind, nb::dict given) {
  return with_fault<UsageError>([&] {
    Settings settings(kind, given);
    if (kind == "random_layered") return make(settings, random_layered);
    if (kind == "chain") return make_chain(settings);
    if (kind == "random_dag") return make(settings, random_dag);
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
