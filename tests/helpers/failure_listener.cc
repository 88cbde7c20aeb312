// Prints the last input of a failing test (reproduce.h), once per test.
#include <gtest/gtest.h>

#include <iostream>

#include "helpers/reproduce.h"

namespace remat::testing {
namespace {

class FailureListener : public ::testing::EmptyTestEventListener {
  void OnTestStart(const ::testing::TestInfo&) override { record(""); }
  void OnTestPartResult(const ::testing::TestPartResult& result) override {
    if (!result.failed() || recorded().empty()) return;
    std::cout << "What was tried last, to be pasted into a shell:\n" << recorded() << std::flush;
    record("");
  }
};

[[maybe_unused]] const bool is_listening = [] {
  // GoogleTest owns its listeners.
  ::testing::UnitTest::GetInstance()->listeners().Append(new FailureListener);
  return true;
}();

}  // namespace
}  // namespace remat::testing
