#include "remat/check.h"

#include <gtest/gtest.h>

#include <stdexcept>
#include <string>

#include "base/sampled_check.h"
#include "helpers/graphs.h"
#include "remat/graph.h"
#include "remat/quantity.h"
#include "remat/store.h"

namespace remat {
namespace {

/// The message of a failed check.
template <class Call>
std::string said_by(Call&& call) {
  try {
    call();
  } catch (const std::logic_error& error) {
    return error.what();
  }
  return "";
}

TEST(Check, FailsWithPlaceConditionAndValues) {
  const int small = 3;
  const std::string text =
      said_by([&] { REMAT_CHECK(small > 7, small, Bytes(9), OpId(2), Wide{1} << 70, "x"); });
  EXPECT_NE(text.find("tests/base/check_test.cc:"), std::string::npos) << text;
  EXPECT_TRUE(
      text.ends_with(": check failed: small > 7 (small, Bytes(9), OpId(2), Wide{1} << 70, \"x\": "
                     "3, 9, 2, 1180591620717411303424, \"x\")"))
      << text;
}

TEST(Check, SaysNothingWhereTheConditionHolds) {
  EXPECT_EQ(said_by([] { REMAT_CHECK(true); }), "");
}

TEST(Check, NamesFilesOfTheLibraryFromItsRootOn) {
  const checks::Place place{"/somebody/src/remat/src/plan/tracker.cc", 12, "a == b", ""};
  EXPECT_EQ(said_by([&] { checks::fail_with(place, ""); }), "src/plan/tracker.cc:12: check failed: a == b");
}

TEST(Check, AsksNothingAboveTheLevelOfTheBuild) {
  int debug = 0, heavy = 0;
  REMAT_ASSERT(++debug > 0);
  REMAT_ASSERT_HEAVY(++heavy > 0);
  EXPECT_EQ(debug, REMAT_CHECKS >= 1 ? 1 : 0);
  EXPECT_EQ(heavy, REMAT_CHECKS >= 2 ? 1 : 0);
}

/// The linked library and this file have the same setting for checks.
TEST(Check, IsOnInTheLibraryAsItIsInItsTests) {
  const Graph graph = testing::training_chain(2);
  PlanStore store;
  const Plan empty;
  const std::string text = said_by([&] { store.add(graph, OrderMode::kFixed, empty); });
  EXPECT_EQ(text.substr(0, text.find(':')), REMAT_CHECKS >= 2 ? "src/plan/store.cc" : "");
}

TEST(SampledCheck, IsDueAlwaysForLittleAndNowAndThenForMuch) {
  SampledCheck little, much;
  int often = 0, seldom = 0;
  for (int i = 0; i < 100; ++i) {
    often += little.due(2000) ? 1 : 0;
    seldom += much.due(20'000) ? 1 : 0;
  }
  EXPECT_EQ(often, 100);
  EXPECT_EQ(seldom, 10);
}

}  // namespace
}  // namespace remat
