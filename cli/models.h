// Command-line options of the models known by name.
#pragma once

#include <cmath>
#include <memory>
#include <sstream>
#include <string>

#include "common.h"
#include "remat/generate.h"

namespace remat::cli {

/// Only checks that a setting is a number; the generator checks its range.
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

/// Options of a model; `finish` adds the ones that are still text.
struct ModelTexts {
  TrainingOptions options;
  std::string granularity = "op", optimizer = "none", durations = "unit", dtype = "fp32", device;
};

/// Adds the options of a model to its subcommand.
void declare_model(CLI::App& sub, const ModelInfo& model, ModelTexts& texts);
/// Throws UsageError.
TrainingOptions finish(const ModelTexts& texts);

}  // namespace remat::cli
