// Reads planner-specific options by name; what nobody read is an error.
#pragma once

#include <set>
#include <string>
#include <string_view>

#include "remat/planner.h"

namespace remat {

class OptionReader {
 public:
  OptionReader(const PlanOptions& options, std::string_view planner)
      : options_(&options), planner_(planner) {}

  /// Each overwrites `into` where the option is given and throws UsageError where its text is not of that
  /// type or outside [lo, hi].
  OptionReader& integer(std::string_view name, std::int64_t& into, std::int64_t lo, std::int64_t hi);
  OptionReader& number(std::string_view name, double& into, double lo, double hi);
  OptionReader& flag(std::string_view name, bool& into);
  OptionReader& text(std::string_view name, std::string& into);
  OptionReader& choice(std::string_view name, std::string& into,
                       std::initializer_list<std::string_view> allowed);
  /// Throws UsageError where an option was given that nobody read.
  void finish() const;

 private:
  const std::string* find(std::string_view name);
  [[noreturn]] void refuse(std::string_view name, const std::string& expected) const;

  const PlanOptions* options_;
  std::string planner_;
  std::set<std::string, std::less<>> known_;
};

}  // namespace remat
