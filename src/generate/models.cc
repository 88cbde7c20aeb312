#include "generate/models.h"

#include <algorithm>
#include <concepts>
#include <string>

#include "generate/checks.h"
#include "generate/lower.h"
#include "generate/training.h"
#include "remat/words.h"

namespace remat {
namespace {

using generate::Program;
using generate::Recipe;
using generate::require_between;
using generate::Tensor;

using Build = Tensor (*)(Program&, const Recipe&);

struct Row {
  ModelInfo info;
  Build build;
};

const std::vector<Row>& table() {
  using namespace generate;
  // batch, resolution, sequence, depth, width, heads, classes, vocabulary, dropout; -1: has none.
  static const std::vector<Row> kRows{
      {{"ffn", "dense layers with relu, squared error", {{"", {256, -1, -1, 100, 1024, -1, 1024, -1, -1}}}},
       build_ffn},
      {{"resnet",
        "residual network",
        {{"imagenet", {32, 224, -1, 50, 64, -1, 1000, -1, -1}},
         {"cifar", {128, 32, -1, 110, 16, -1, 10, -1, -1}}}},
       build_resnet},
      {{"regnet",
        "RegNetX",
        {{"x_32gf", {32, 224, -1, -1, -1, -1, 1000, -1, -1}},
         {"x_3_2gf", {32, 224, -1, -1, -1, -1, 1000, -1, -1}},
         {"x_400mf", {32, 224, -1, -1, -1, -1, 1000, -1, -1}}}},
       build_regnet},
      {{"vgg", "VGG 11, 13, 16, 19", {{"", {32, 224, -1, 16, 64, -1, 1000, -1, 0.5}}}}, build_vgg},
      {{"unet",
        "U-Net with batch normalisation; depth: halvings",
        {{"", {8, 256, -1, 4, 64, -1, 2, -1, -1}}}},
       build_unet},
      {{"densenet",
        "DenseNet 121, 161, 169, 201; width: growth",
        {{"", {32, 224, -1, 121, 32, -1, 1000, -1, -1}}, {"161", {32, 224, -1, 161, 48, -1, 1000, -1, -1}}}},
       build_densenet},
      {{"googlenet",
        "GoogLeNet with batch normalisation",
        {{"", {32, 224, -1, -1, -1, -1, 1000, -1, 0.2}},
         {"auxiliary", {32, 224, -1, -1, -1, -1, 1000, -1, 0.2}}}},
       build_googlenet},
      {{"pspnet",
        "pyramid scene parsing on a dilated ResNet",
        {{"", {2, 713, -1, 101, 64, -1, 21, -1, 0.1}},
         {"auxiliary", {2, 713, -1, 101, 64, -1, 21, -1, 0.1}}}},
       build_pspnet},
      {{"fcn8", "fully convolutional VGG16, stride 8", {{"", {8, 416, -1, -1, 64, -1, 21, -1, 0.5}}}},
       build_fcn8},
      {{"segnet",
        "VGG16 encoder and its mirror, unpooling by indices",
        {{"", {8, 416, -1, -1, 64, -1, 12, -1, -1}}}},
       build_segnet},
      {{"mobilenet", "MobileNet v1", {{"", {64, 224, -1, -1, 32, -1, 1000, -1, -1}}}}, build_mobilenet},
      {{"mlp_mixer",
        "MLP-Mixer, patches of 16",
        {{"base", {32, 224, -1, 12, 768, -1, 1000, -1, -1}},
         {"small", {32, 224, -1, 8, 512, -1, 1000, -1, -1}}}},
       build_mlp_mixer},
      {{"transformer",
        "encoder and decoder, normalisation first",
        {{"base", {32, -1, 64, 6, 512, 8, -1, 33708, 0.1}},
         {"big", {64, -1, 64, 6, 1024, 16, -1, 33708, 0.1}}}},
       build_transformer},
      {{"gpt",
        "GPT-2",
        {{"small", {4, -1, 1024, 12, 768, 12, -1, 50257, 0.1}},
         {"medium", {4, -1, 1024, 24, 1024, 16, -1, 50257, 0.1}},
         {"large", {4, -1, 1024, 36, 1280, 20, -1, 50257, 0.1}},
         {"xl", {4, -1, 1024, 48, 1600, 25, -1, 50257, 0.1}}}},
       build_gpt},
      {{"fno",
        "Fourier neural operator; heads: modes",
        {{"2d", {16, 256, -1, 4, 64, 16, 1, -1, -1}},
         {"1d", {64, 8192, -1, 4, 64, 16, 1, -1, -1}},
         {"3d", {4, 64, -1, 4, 20, 8, 1, -1, -1}}}},
       build_fno},
      {{"ufno",
        "Fourier neural operator with small U-Nets in the second half of its layers; heads: modes",
        {{"", {16, 128, -1, 6, 36, 10, 1, -1, -1}}}},
       build_ufno},
      {{"uno",
        "U-shaped neural operator; heads: modes, depth: halvings",
        {{"", {16, 128, -1, 3, 32, 16, 1, -1, -1}}}},
       build_uno},
  };
  return kRows;
}

const Row& find_model(std::string_view name) {
  std::vector<std::string> known;
  for (const Row& row : table()) {
    if (row.info.name == name) return row;
    known.emplace_back(row.info.name);
  }
  throw UsageError("no model '" + std::string(name) + "'; there are " + listed(known));
}

const ModelInfo::Variant& find_variant(const ModelInfo& model, std::string_view name) {
  if (name.empty()) return model.variants.front();
  std::vector<std::string> known;
  for (const ModelInfo::Variant& variant : model.variants) {
    if (variant.name == name) return variant;
    if (!variant.name.empty()) known.emplace_back(variant.name);
  }
  throw UsageError(std::string(model.name) + " has no variant '" + std::string(name) + "'" +
                   (known.empty() ? "" : "; there are " + listed(known)));
}

/// The model's value unless the user gave one; the user may only give what the model has.
template <class T>
void resolve(const ModelInfo& model, std::string_view name, T given, T& value) {
  if (given == T(-1)) return;
  if (value == T(-1))
    throw UsageError(std::string(model.name) + " has no setting '" + std::string(name) + "'");
  value = given;
}

ModelSettings resolve_settings(const ModelInfo& model, const ModelSettings& given, ModelSettings s) {
  visit_sizes([&]<class T>(std::string_view name, T ModelSettings::* size, const char*) {
    constexpr T kLeast = std::integral<T> ? 1 : 0, kMost = std::integral<T> ? T(1 << 20) : T(0.99);
    resolve(model, name, given.*size, s.*size);
    if (s.*size != -1) require_between(name, s.*size, kLeast, kMost);
  });
  return s;
}

std::string graph_name(const TrainingOptions& o, std::string_view variant, const ModelSettings& s) {
  std::string name = o.model;
  if (!variant.empty()) name.append(1, '_').append(variant);
  const auto add = [&](std::string_view letter, std::int64_t value) {
    if (value >= 0) name.append(1, '_').append(letter).append(std::to_string(value));
  };
  add("d", s.depth);
  add("w", s.width);
  add("b", s.batch);
  add("r", s.resolution);
  add("s", s.sequence);
  if (o.granularity == Granularity::kLayer) name += "_layers";
  if (o.granularity == Granularity::kPrimitive) name += "_primitives";
  if (o.dtype == DataType::kBf16) name += "_bf16";
  return name;
}

}  // namespace

std::span<const ModelInfo> models() {
  static const std::vector<ModelInfo> kModels = [] {
    std::vector<ModelInfo> result;
    for (const Row& row : table()) result.push_back(row.info);
    return result;
  }();
  return kModels;
}

std::map<std::string, std::int64_t ModelSettings::*> searched_sizes(const ModelInfo& model) {
  std::map<std::string, std::int64_t ModelSettings::*> sizes{{"batch", &ModelSettings::batch},
                                                             {"sequence", &ModelSettings::sequence},
                                                             {"resolution", &ModelSettings::resolution},
                                                             {"depth", &ModelSettings::depth},
                                                             {"width", &ModelSettings::width}};
  const ModelSettings& own = model.variants.front().settings;
  std::erase_if(sizes, [&](const auto& size) { return own.*size.second == -1; });
  return sizes;
}

namespace {

/// The peak rate in bf16: that of the tensor cores, or the given rate of a custom device.
Device in_bf16(Device device) {
  const bool is_known =
      std::ranges::any_of(devices(), [&](const Device& one) { return one.name == device.name; });
  if (device.bf16_flops_per_second > 0) {
    device.flops_per_second = device.bf16_flops_per_second;
  } else if (is_known) {
    std::vector<std::string> have;
    for (const Device& one : devices()) {
      if (one.bf16_flops_per_second > 0) have.push_back(one.name);
    }
    throw UsageError("device '" + device.name + "' has no rate for bf16; these have: " + listed(have) +
                     ", and flops=F,bandwidth=B takes any");
  }
  return device;
}

/// Two bytes in place of four, except for moments and running statistics, and for all but the first output of
/// ops that read these.
void make_bf16(Program& program) {
  IndexVector<Tensor, bool> is_wide(program.tensors.size(), false);
  for (Tensor t : program.tensors.ids()) is_wide[t] = program.tensors[t].role == generate::Role::kState;
  for (generate::Node n : program.nodes.ids()) {
    const bool reads_state = std::ranges::any_of(
        program.inputs[n], [&](Tensor t) { return program.tensors[t].role == generate::Role::kState; });
    if (!reads_state) continue;
    for (Tensor t : program.outputs[n].subspan(1)) is_wide[t] = true;
  }
  constexpr std::int8_t kFloat32 = 4, kBf16 = 2;
  for (Tensor t : program.tensors.ids()) {
    std::int8_t& bytes = program.tensors[t].element_bytes;
    if (bytes == kFloat32 && !is_wide[t]) bytes = kBf16;
  }
}

}  // namespace

Graph training_graph(const TrainingOptions& o) {
  const Row& model = find_model(o.model);
  const ModelInfo::Variant& variant = find_variant(model.info, o.variant);
  const ModelSettings settings = resolve_settings(model.info, o.settings, variant.settings);
  Program program(o.granularity == Granularity::kPrimitive ? generate::Dialect::kPrimitives
                                                           : generate::Dialect::kKernels);
  const Tensor loss = model.build(program, {settings, variant.name, o.optimizer != Optimizer::kNone});
  generate::finish_training(program, loss, o.optimizer);
  std::optional<Device> device = o.device;
  if (o.dtype == DataType::kBf16) {
    make_bf16(program);
    if (device) device = in_bf16(*device);
  }
  return generate::lower(program, {graph_name(o, variant.name, settings),
                                   o.granularity == Granularity::kLayer, o.random_recomputable, device});
}

}  // namespace remat
