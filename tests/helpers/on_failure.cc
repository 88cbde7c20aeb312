#include "helpers/on_failure.h"

#include <gtest/gtest.h>

#include <exception>
#include <iostream>
#include <utility>

namespace remat::testing {
namespace {

int failed_parts() {
  const auto* test = ::testing::UnitTest::GetInstance()->current_test_info();
  if (!test) return 0;
  int failed = 0;
  for (int i = 0; i < test->result()->total_part_count(); ++i) {
    failed += test->result()->GetTestPartResult(i).failed();
  }
  return failed;
}

}  // namespace

OnFailure::OnFailure(std::function<std::string()> describe)
    : describe_(std::move(describe)),
      failed_before_(failed_parts()),
      exceptions_before_(std::uncaught_exceptions()) {}

OnFailure::~OnFailure() {
  if (failed_parts() > failed_before_ || std::uncaught_exceptions() > exceptions_before_) {
    std::cout << "To meet the failure again:\n" << describe_() << std::flush;
  }
}

}  // namespace remat::testing
