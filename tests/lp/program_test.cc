// Integer programs that continue after a limit.
#include <gtest/gtest.h>

#include <chrono>
#include <thread>
#include <vector>

#include "lp/highs.h"
#include "remat/left_behind.h"
#include "remat/random.h"

namespace remat::lp {
namespace {

/// Several knapsacks of the same things: some thousand iterations.
Model knapsacks() {
  Random random(3);
  Model model;
  for (int i = 0; i < 60; ++i) model.add_column(-real(20 + random.below(80)), 0, 1, true);
  for (int row = 0; row < 8; ++row) {
    std::vector<Term> terms;
    for (int i = 0; i < 60; ++i) terms.push_back({i, real(10 + random.below(90))});
    model.add_row(-kInfinity, 1000, terms);
  }
  return model;
}

Solution solved() {
  Limits limits;
  Solution solution = solve(knapsacks(), {}, limits);
  EXPECT_EQ(solution.outcome, Outcome::kOptimal);
  return solution;
}

TEST(Program, EndsInPartsWhereItEndsInOne) {
  const Solution whole = solved();
  Program program(knapsacks(), {});
  int parts = 0;
  std::int64_t iterations = 0;
  double bound = -kInfinity;
  Solution part;
  do {
    Limits limits;
    limits.set_work(whole.iterations);
    part = program.advance(limits);
    iterations += part.iterations;
    EXPECT_GE(part.bound, bound);
    bound = part.bound;
    ++parts;
  } while (part.outcome == Outcome::kStopped && parts < 1000);
  EXPECT_EQ(part.outcome, Outcome::kOptimal);
  EXPECT_GT(parts, 2);
  EXPECT_EQ(part.objective, whole.objective);
  EXPECT_EQ(part.x, whole.x);
  EXPECT_EQ(iterations, whole.iterations);
}

TEST(Program, WaitsAtTheSamePlaceEverywhere) {
  const auto bounds = [work = solved().iterations] {
    Program program(knapsacks(), {});
    std::vector<double> found;
    for (int i = 0; i < 3; ++i) {
      Limits limits;
      limits.set_work(work);
      found.push_back(program.advance(limits).bound);
    }
    return found;
  };
  EXPECT_EQ(bounds(), bounds());
}

TEST(Program, SaysTheSameAgainOnceItEnded) {
  Program program(knapsacks(), {});
  Limits limits;
  const Solution first = program.advance(limits), again = program.advance(limits);
  EXPECT_EQ(first.outcome, Outcome::kOptimal);
  EXPECT_EQ(again.outcome, Outcome::kOptimal);
  EXPECT_EQ(again.x, first.x);
  EXPECT_EQ(again.iterations, 0);
}

TEST(Program, LeavesNothingBehindWhereItIsGivenUp) {
  {
    Program program(knapsacks(), {});
    Limits limits;
    limits.set_work(100);
    EXPECT_EQ(program.advance(limits).outcome, Outcome::kStopped);
  }
  while (work_is_left_behind()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
}

TEST(Program, HandsOverWhatIsBetter) {
  std::vector<double> objectives;
  Settings settings;
  settings.on_better = [&](const std::vector<double>& x, double objective) {
    EXPECT_EQ(x.size(), 60U);
    objectives.push_back(objective);
  };
  Program program(knapsacks(), settings);
  Limits limits;
  const Solution solution = program.advance(limits);
  ASSERT_FALSE(objectives.empty());
  EXPECT_DOUBLE_EQ(objectives.back(), solution.objective);
}

}  // namespace
}  // namespace remat::lp
