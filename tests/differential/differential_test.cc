#include "differential/differential.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "helpers/graphs.h"
#include "remat/planner.h"

namespace remat::differential {
namespace {

/// `build/tests/remat_differential` runs any number.
class Differential : public ::testing::TestWithParam<int> {};

TEST_P(Differential, EveryPlannerTellsTheTruthOnTinyGraphs) {
  const Report report = run({.seed = 1, .first = GetParam() * 25, .graphs = 25, .planner = {}});
  for (const std::string& finding : report.findings) ADD_FAILURE() << finding;
  // Graphs without a host; those who need one have tests/planners/offload_test.cc.
  const Graph graph = testing::training_chain(3);
  const auto takes_none = [&](const PlannerInfo& planner) {
    const auto reason = planner.supports({&graph});
    return reason && reason->find("host") != std::string::npos;
  };
  const auto without_host = std::ssize(planners()) - std::ranges::count_if(planners(), takes_none);
  EXPECT_EQ(std::ssize(report.planners), without_host + 1) << "a planner that took no graph is not tested";
}

INSTANTIATE_TEST_SUITE_P(Part, Differential, ::testing::Range(0, 8));

}  // namespace
}  // namespace remat::differential
