#include "allocator.h"

namespace remat::cli {

void AllocatorOption::declare(CLI::App& command) {
  command
      .add_option("--allocator", text,
                  "simulate PyTorch's caching allocator: cuda, cuda-expandable or exact, with options as in "
                  "cuda:max_split_size_mb:200")
      ->type_name("NAME[:OPTIONS]");
}

std::optional<AllocatorConfig> AllocatorOption::read() const {
  return text.empty() ? std::nullopt : std::optional(parse_allocator(text));
}

void add_peaks(Report& report, const AllocatorConfig& allocator, const AllocatorPeaks* peaks) {
  report["allocator"] = to_string(allocator);
  report["allocated_peak"] = peaks ? Report(peaks->allocated.count()) : Report(nullptr);
  report["reserved_peak"] = peaks ? Report(peaks->reserved.count()) : Report(nullptr);
}

}  // namespace remat::cli
