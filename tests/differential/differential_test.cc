#include "differential/differential.h"

#include <gtest/gtest.h>

#include "remat/planner.h"

namespace remat::differential {
namespace {

/// `build/tests/remat_differential` runs any number.
class Differential : public ::testing::TestWithParam<int> {};

TEST_P(Differential, EveryPlannerTellsTheTruthOnTinyGraphs) {
  const Report report = run({.seed = 1, .first = GetParam() * 25, .graphs = 25, .planner = {}});
  for (const std::string& finding : report.findings) ADD_FAILURE() << finding;
  EXPECT_EQ(report.planners.size(), planners().size() + 1) << "a planner that took no graph is not tested";
}

INSTANTIATE_TEST_SUITE_P(Part, Differential, ::testing::Range(0, 8));

}  // namespace
}  // namespace remat::differential
