#include "planning/incumbent.h"

#include <gtest/gtest.h>

#include "helpers/graphs.h"

namespace remat {
namespace {

Simulation cost(std::int64_t peak, std::int64_t duration) {
  return {.peak = Bytes(peak), .peak_step = StepId(0), .duration = Duration(duration), .traffic = {}};
}

class IncumbentTest : public ::testing::Test {
 protected:
  IncumbentTest() : graph_(testing::training_chain(3)), problem_{&graph_, Bytes(10)} {
    limits_.set_progress([this](const Progress& progress) { heard_.push_back(progress); });
  }
  bool offer(Incumbent& best, std::int64_t peak, std::int64_t duration) {
    return best.offer(keep_all_plan(graph_), cost(peak, duration));
  }

  Graph graph_;
  Problem problem_;
  Limits limits_;
  std::vector<Progress> heard_;
};

TEST_F(IncumbentTest, PrefersPlansThatFitThenTheFasterThenTheSmaller) {
  Incumbent best(problem_, "test", limits_);
  EXPECT_TRUE(best.empty());
  EXPECT_TRUE(offer(best, 20, 1));
  EXPECT_TRUE(offer(best, 19, 9)) << "over the budget the smaller peak counts";
  EXPECT_FALSE(offer(best, 19, 9)) << "of equal ones the first stays";
  EXPECT_FALSE(best.fits());
  EXPECT_TRUE(offer(best, 10, 50));
  EXPECT_TRUE(best.fits());
  EXPECT_FALSE(offer(best, 11, 1));
  EXPECT_TRUE(offer(best, 10, 40));
  EXPECT_TRUE(offer(best, 9, 40));
  EXPECT_FALSE(offer(best, 1, 41));
  EXPECT_EQ(best.cost(), cost(9, 40));
}

TEST_F(IncumbentTest, PrefersTheSmallerPeakWhereThatIsAskedWhateverTheBudget) {
  problem_.objective = Objective::kPeak;
  Incumbent best(problem_, "test", limits_);
  EXPECT_TRUE(offer(best, 9, 1));
  EXPECT_FALSE(best.fits()) << "every peak can be beaten";
  EXPECT_TRUE(offer(best, 8, 90));
  EXPECT_TRUE(offer(best, 8, 80));
  EXPECT_FALSE(offer(best, 9, 1));
}

TEST_F(IncumbentTest, ReportsEachBetterPlanAndWhetherItMayRun) {
  Incumbent best(problem_, "test", limits_);
  offer(best, 20, 1);
  offer(best, 21, 1);
  offer(best, 10, 5);
  ASSERT_EQ(heard_.size(), 2u);
  EXPECT_EQ(heard_[0].planner, "test");
  EXPECT_FALSE(heard_[0].within_budget);
  EXPECT_TRUE(heard_[1].within_budget);
  EXPECT_EQ(heard_[1].duration, Duration(5));
}

TEST_F(IncumbentTest, MeansTheSameByWithinTheBudgetInBothObjectives) {
  problem_.objective = Objective::kPeak;
  Incumbent bounded(problem_, "test", limits_);
  offer(bounded, 11, 1);
  offer(bounded, 10, 1);
  problem_.budget = kNoBudget;
  Incumbent unbounded(problem_, "test", limits_);
  offer(unbounded, 1'000'000, 1);
  ASSERT_EQ(heard_.size(), 3u);
  EXPECT_FALSE(heard_[0].within_budget);
  EXPECT_TRUE(heard_[1].within_budget);
  EXPECT_TRUE(heard_[2].within_budget);
}

TEST_F(IncumbentTest, CountsTheCostItself) {
  Incumbent best(problem_, "test", limits_);
  best.offer(keep_all_plan(graph_));
  EXPECT_EQ(best.cost(), simulate(graph_, keep_all_plan(graph_)));
  const PlanResult result = best.result({{"tried", 1}});
  EXPECT_EQ(result.plan, keep_all_plan(graph_));
  EXPECT_EQ(result.counters, (Counters{{"tried", 1}}));
}

}  // namespace
}  // namespace remat
