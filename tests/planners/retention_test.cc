// Plans from the moment of the keep-all peak where it is not the only one.
#include "planners/retention/retention.h"

#include <gtest/gtest.h>

#include "helpers/graphs.h"
#include "remat/generate.h"
#include "remat/keep_all.h"

namespace remat {
namespace {

TEST(RetentionPlanner, OfADeepModelFitsWhereWhatRunsAgainIsHeldForLong) {
  TrainingOptions options;
  options.model = "gpt";
  options.settings.depth = 192;
  options.device = parse_device("a100");
  const Graph graph = training_graph(options);
  for (int percent : {30}) {
    const Bytes budget(keep_all_peak(graph).count() / 100 * percent);
    Limits limits;
    const PlanResult found = make_plan({&graph, budget}, "retention", {}, limits);
    ASSERT_TRUE(has_plan(found)) << percent;
    EXPECT_LE(found.cost.peak, budget);
    EXPECT_LT(gap(found), 0.1) << percent;
  }
}

TEST(RetentionPlanner, OfRandomGraphsEndsWithTheLeastPeakOnTheWay) {
  Random random(24);
  int over = 0;
  for (int round = 0; round < 300; ++round) {
    const Graph graph = testing::random_graph(random);
    const Bytes keep_all = keep_all_peak(graph), budget(keep_all.count() * 3 / 4);
    Limits limits;
    Bytes least = keep_all;
    for (const Plan& plan : retention::candidate_plans(graph, budget, limits)) {
      ASSERT_FALSE(validate(graph, plan, OrderMode::kFixed));
      least = std::min(least, simulate(graph, plan).peak);
    }
    over += least < keep_all;
  }
  EXPECT_GT(over, 30);
}

}  // namespace
}  // namespace remat
