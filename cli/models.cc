#include "models.h"

#include <map>

#include "remat/error.h"

namespace remat::cli {
namespace {}  // namespace

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

void declare_model(CLI::App& sub, const ModelInfo& model, ModelTexts& texts) {
  texts.options.model = model.name;
  if (model.variants.size() > 1) {
    std::vector<std::string> names;
    for (const ModelInfo::Variant& v : model.variants) {
      if (!v.name.empty()) names.emplace_back(v.name);
    }
    take_one_of(*sub.add_option("--variant", texts.options.variant, "settings to start from"), names);
  }
  ModelSettings& s = texts.options.settings;
  const ModelSettings& standard = model.variants.front().settings;
  visit_sizes([&](const std::string& name, auto size, const std::string& description) {
    if (standard.*size == -1) return;
    std::ostringstream text;
    text << (model.name == "fno" && name == "heads" ? "modes" : description) << " [" << standard.*size << "]";
    add_setting(sub, name, s.*size, text.str());
  });
  take_one_of(
      *sub.add_option("--granularity", texts.granularity, "op, layer or primitive")->capture_default_str(),
      {"op", "layer", "primitive"});
  take_one_of(
      *sub.add_option("--optimizer", texts.optimizer, "none, sgd, momentum or adam")->capture_default_str(),
      {"none", "sgd", "momentum", "adam"});
  take_one_of(*sub.add_option("--dtype", texts.dtype, "fp32 or bf16 (two bytes, tensor cores)")
                   ->capture_default_str(),
              {"fp32", "bf16"});
  take_one_of(*sub.add_option("--durations", texts.durations, "unit or roofline (nanoseconds)")
                   ->capture_default_str(),
              {"unit", "roofline"});
  sub.add_option("--device", texts.device,
                 "cpu, p100, v100, a100, h100, h200, or flops=F,bandwidth=B,launch=L [a100]");
  sub.add_flag("--no-random-recompute{false}", texts.options.random_recomputable,
               "ops that draw random numbers run once");
}

}  // namespace remat::cli
