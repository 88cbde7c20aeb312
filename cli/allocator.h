// --allocator: device memory that PyTorch's caching allocator takes for plans.
#pragma once

#include <CLI/CLI.hpp>
#include <optional>
#include <string>

#include "common.h"
#include "remat/allocator.h"

namespace remat::cli {

struct AllocatorOption {
  std::string text;

  void declare(CLI::App& command);
  /// Nothing if the option is not given. Throws UsageError.
  std::optional<AllocatorConfig> read() const;
};

/// The peaks under the allocator; null where there is no plan.
void add_peaks(Report& report, const AllocatorConfig& allocator, const AllocatorPeaks* peaks);

}  // namespace remat::cli
