// Words that only a failing test prints.
#pragma once

#include <functional>
#include <string>

namespace remat::testing {

/// Prints what `describe` says where the test fails or throws while this object lives.
class OnFailure {
 public:
  explicit OnFailure(std::function<std::string()> describe);
  ~OnFailure();
  OnFailure(const OnFailure&) = delete;
  OnFailure& operator=(const OnFailure&) = delete;

 private:
  std::function<std::string()> describe_;
  int failed_before_, exceptions_before_;
};

}  // namespace remat::testing
