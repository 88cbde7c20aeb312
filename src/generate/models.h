// Models by name: each builds the forward program and returns the loss.
#pragma once

#include "generate/program.h"
#include "remat/generate.h"

namespace remat::generate {

/// Settings after defaults: all that the model takes are set.
struct Recipe {
  ModelSettings size;
  std::string_view variant;
  bool weight_decay = false;  ///< primitive programs add the squares of the weights to the loss
};

Tensor build_ffn(Program& p, const Recipe& recipe);
Tensor build_mlp_mixer(Program& p, const Recipe& recipe);

Tensor build_fno(Program& p, const Recipe& recipe);
Tensor build_ufno(Program& p, const Recipe& recipe);
Tensor build_uno(Program& p, const Recipe& recipe);

Tensor build_resnet(Program& p, const Recipe& recipe);
Tensor build_regnet(Program& p, const Recipe& recipe);
Tensor build_vgg(Program& p, const Recipe& recipe);
Tensor build_densenet(Program& p, const Recipe& recipe);
Tensor build_googlenet(Program& p, const Recipe& recipe);
Tensor build_mobilenet(Program& p, const Recipe& recipe);

Tensor build_unet(Program& p, const Recipe& recipe);
Tensor build_pspnet(Program& p, const Recipe& recipe);
Tensor build_fcn8(Program& p, const Recipe& recipe);
Tensor build_segnet(Program& p, const Recipe& recipe);

Tensor build_transformer(Program& p, const Recipe& recipe);
Tensor build_gpt(Program& p, const Recipe& recipe);

/// Blocks in each of the four stages of an ImageNet ResNet, and whether they are bottlenecks. Throws
/// UsageError for a depth that has none.
struct ResnetStages {
  std::array<std::int64_t, 4> blocks;
  bool bottleneck;
};
ResnetStages resnet_stages(std::int64_t depth);

/// Stem and stages of an ImageNet ResNet; the last two keep their resolution by dilation if `dilated`. Gives
/// the result of the third stage too where asked.
Tensor resnet_trunk(Program& p, Tensor x, const ResnetStages& stages, std::int64_t width, bool dilated,
                    Tensor* third_stage = nullptr);

}  // namespace remat::generate
