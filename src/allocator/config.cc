// Settings of the allocator in the syntax of PyTorch's environment variable.
#include <algorithm>
#include <bit>
#include <charconv>

#include "allocator/rules.h"
#include "base/numbers.h"
#include "remat/allocator.h"
#include "remat/error.h"

namespace remat {
namespace {

using namespace allocator;

constexpr std::string_view kNative = "cuda", kExpandable = "cuda-expandable", kExact = "exact";

/// Valid options without effect on bytes on the device, or not simulated.
constexpr std::array kReadOver{
    std::string_view("garbage_collection_threshold"),   std::string_view("per_process_memory_fraction"),
    std::string_view("release_lock_on_cudamalloc"),     std::string_view("release_lock_on_hipmalloc"),
    std::string_view("throw_on_cudamalloc_oom"),        std::string_view("graph_capture_record_stream_reuse"),
    std::string_view("pinned_use_cuda_host_register"),  std::string_view("pinned_use_hip_host_register"),
    std::string_view("pinned_num_register_threads"),    std::string_view("pinned_use_background_threads"),
    std::string_view("pinned_reserve_segment_size_mb"), std::string_view("pinned_max_round_threshold_mb"),
    std::string_view("pinned_max_cached_size_mb")};

class Parser {
 public:
  explicit Parser(std::string_view text) : whole_(text) {}

  AllocatorConfig parse() {
    const std::size_t colon = whole_.find(':');
    const std::string_view name = whole_.substr(0, colon);
    config_.exact = name == kExact;
    config_.expandable_segments = name == kExpandable;
    if (name != kNative && name != kExpandable && name != kExact) {
      refuse("is not cuda, cuda-expandable or exact");
    }
    if (colon == std::string_view::npos) return config_;
    if (config_.exact) refuse("has options, and exact takes none");
    for (const std::string& option : split(whole_.substr(colon + 1))) {
      if (!option.empty()) take(option);
    }
    check();
    return config_;
  }

 private:
  [[noreturn]] void refuse(const std::string& why) const {
    throw UsageError("allocator '" + std::string(whole_) + "' " + why);
  }

  /// At commas outside brackets, without white space.
  static std::vector<std::string> split(std::string_view text) {
    std::vector<std::string> parts(1);
    int depth = 0;
    for (const char c : text) {
      depth += c == '[' ? 1 : c == ']' ? -1 : 0;
      if (c == ',' && depth == 0) {
        parts.emplace_back();
      } else if (c != ' ' && c != '\t') {
        parts.back() += c;
      }
    }
    return parts;
  }

  std::pair<std::string, std::string> pair(const std::string& text) const {
    const std::size_t colon = text.find(':');
    if (colon == std::string::npos || colon == 0 || colon + 1 == text.size()) {
      refuse("has '" + text + "' where KEY:VALUE is expected");
    }
    return {text.substr(0, colon), text.substr(colon + 1)};
  }

  std::int64_t whole(const std::string& key, const std::string& text) const {
    std::int64_t value = -1;
    const char* end = text.data() + text.size();
    const auto [at, error] = std::from_chars(text.data(), end, value);
    if (error != std::errc() || at != end || value < 0) {
      refuse("has " + key + " '" + text + "', which is not a whole number");
    }
    return value;
  }

  Bytes megabytes(const std::string& key, const std::string& text) const {
    return Bytes(std::min(whole(key, text), kMaxCount / kMiB.count() - 1) * kMiB.count());
  }

  std::int64_t divisions(const std::string& text, bool may_be_none) const {
    const std::int64_t value = whole("roundup_power2_divisions", text);
    if (std::has_single_bit(narrow<std::uint64_t>(value)) || (may_be_none && value == 0)) return value;
    refuse("has roundup_power2_divisions " + text + ", which is not a power of two");
  }

  void take(const std::string& option) {
    const auto [key, value] = pair(option);
    if (key == "expandable_segments") {
      if (value != "True" && value != "False") refuse("has expandable_segments neither True nor False");
      config_.expandable_segments = value == "True";
    } else if (key == "large_segment_size_mb") {
      config_.large_segment = megabytes(key, value);
    } else if (key == "max_split_size_mb") {
      config_.max_split = megabytes(key, value);
    } else if (key == "max_non_split_rounding_mb") {
      config_.max_non_split_rounding = megabytes(key, value);
    } else if (key == "roundup_power2_divisions") {
      take_divisions(value);
    } else if (key == "backend") {
      if (value != "native") refuse("has backend " + value + ": only native is simulated");
    } else if (std::find(kReadOver.begin(), kReadOver.end(), key) == kReadOver.end()) {
      refuse("has an unknown option '" + key +
             "' (known: expandable_segments, large_segment_size_mb, max_split_size_mb, "
             "max_non_split_rounding_mb, roundup_power2_divisions)");
    }
  }

  /// One number for all sizes, or "[64:8,256:4,>:1]": divisions from each size in MiB on. The first also
  /// applies below its size, ">" above the last size; sizes in between that are left out are rounded to
  /// blocks.
  void take_divisions(const std::string& text) {
    if (text.front() != '[') {
      config_.power2_divisions.fill(divisions(text, false));
      return;
    }
    if (text.back() != ']' || text.size() < 2) refuse("has no ']' behind '" + text + "'");
    auto& steps = config_.power2_divisions;
    steps.fill(0);
    std::size_t last = 0;
    bool is_first = true;
    for (const std::string& entry : split(std::string_view(text).substr(1, text.size() - 2))) {
      if (entry.empty()) continue;
      const auto [from, value] = pair(entry);
      const std::int64_t count = divisions(value, true);
      if (from == ">") {
        std::fill(steps.begin() + narrow<std::ptrdiff_t>(std::min(last + 1, steps.size())), steps.end(),
                  count);
        continue;
      }
      const auto size = narrow<std::uint64_t>(whole("roundup_power2_divisions", from));
      if (!std::has_single_bit(size)) {
        refuse("has roundup_power2_divisions from " + from + " MiB, which is not a power of two");
      }
      last = std::min(narrow<std::size_t>(std::countr_zero(size)), steps.size() - 1);
      if (is_first) std::fill(steps.begin(), steps.begin() + narrow<std::ptrdiff_t>(last), count);
      is_first = false;
      steps[last] = count;
    }
  }

  void check() const {
    const auto least = [&](const char* key, Bytes value, Bytes bound) {
      if (value >= bound) return;
      refuse("has " + std::string(key) + " " + std::to_string(value.count() / kMiB.count()) +
             ", and it is at least " + std::to_string(bound.count() / kMiB.count()));
    };
    least("large_segment_size_mb", config_.large_segment, kLeastLarge + kMiB);
    if (config_.max_split) least("max_split_size_mb", *config_.max_split, config_.large_segment);
    // The default of 20 MiB does not follow the size of segments.
    if (config_.max_non_split_rounding != AllocatorConfig().max_non_split_rounding) {
      least("max_non_split_rounding_mb", config_.max_non_split_rounding, config_.large_segment);
    }
  }

  std::string_view whole_;
  AllocatorConfig config_;
};

std::string listed(const std::array<std::int64_t, 16>& divisions) {
  std::string text = "[";
  for (int k : indices(divisions)) {
    text += (k == 0 ? "" : ",") + std::to_string(1 << k) + ":" + std::to_string(divisions[at(k)]);
  }
  return text + "]";
}

}  // namespace

AllocatorConfig parse_allocator(std::string_view text) { return Parser(text).parse(); }

std::string to_string(const AllocatorConfig& config) {
  if (config.exact) return std::string(kExact);
  const AllocatorConfig standard;
  std::string options;
  const auto add = [&](const char* key, const std::string& value) {
    options += (options.empty() ? ":" : ",") + std::string(key) + ":" + value;
  };
  const auto add_megabytes = [&](const char* key, Bytes value) {
    add(key, std::to_string(value.count() / kMiB.count()));
  };
  if (config.large_segment != standard.large_segment) {
    add_megabytes("large_segment_size_mb", config.large_segment);
  }
  if (config.max_split) add_megabytes("max_split_size_mb", *config.max_split);
  if (config.max_non_split_rounding != standard.max_non_split_rounding) {
    add_megabytes("max_non_split_rounding_mb", config.max_non_split_rounding);
  }
  const auto& divisions = config.power2_divisions;
  if (divisions != standard.power2_divisions) {
    const bool is_one = std::all_of(divisions.begin(), divisions.end(),
                                    [&](std::int64_t count) { return count == divisions.front(); });
    add("roundup_power2_divisions", is_one ? std::to_string(divisions.front()) : listed(divisions));
  }
  return std::string(config.expandable_segments ? kExpandable : kNative) + options;
}

Bytes rounded_request(const AllocatorConfig& config, Bytes request) {
  if (config.exact || request == Bytes()) return request;
  if (request < kBlock) return kBlock;
  const auto size = narrow<std::uint64_t>(request.count());
  const int power = static_cast<int>(std::bit_width(size)) - 1;
  constexpr int kMegabyte = 20;
  const int row = std::clamp(power - kMegabyte, 0, narrow<int>(config.power2_divisions.size()) - 1);
  const std::int64_t divisions = config.power2_divisions[at(row)];
  if (divisions <= 1 || request.count() <= kBlock.count() * divisions) return round_up(request, kBlock);
  return round_up(request, Bytes((std::int64_t{1} << power) / divisions));
}

}  // namespace remat
