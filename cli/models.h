// Options of the models that are known by name, as they stand on the command line.
#pragma once

#include <memory>
#include <sstream>
#include <string>

#include "common.h"
#include "remat/generate.h"

namespace remat::cli {

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

/// `options` is complete but for the texts.
struct ModelTexts {
  TrainingOptions options;
  std::string granularity = "op", optimizer = "none", durations = "unit", dtype = "fp32", device;
};

/// Adds the options of a model to its subcommand.
void declare_model(CLI::App& sub, const ModelInfo& model, ModelTexts& texts);
/// Throws UsageError.
TrainingOptions finish(const ModelTexts& texts);

}  // namespace remat::cli
