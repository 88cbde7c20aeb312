#include "cpsat/solver.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <thread>

#include "cpsat/library.h"
#include "remat/random.h"

namespace remat::cpsat {
namespace {

class Solver : public ::testing::Test {
 protected:
  void SetUp() override {
    if (const auto reason = unavailable()) GTEST_SKIP() << *reason;
  }
};

/// A packing that no proof settles soon: `n` intervals of random size and demand on one resource.
Model hard_model(int n) {
  Model model;
  Random random(1);
  std::vector<std::int64_t> intervals;
  std::vector<Affine> demands;
  const Var makespan = model.add_var(0, 10'000);
  for (int i = 0; i < n; ++i) {
    const std::int64_t size = random.between(3, 50);
    const Var start = model.add_var(0, 10'000);
    intervals.push_back(model.add_interval(start, size, Affine(start, size)));
    demands.push_back(random.between(1, 40));
    model.at_most(Affine(start, size), makespan);
  }
  model.cumulative(intervals, demands, 60);
  const std::int64_t one = 1;
  model.minimize(std::span(&makespan, 1), std::span(&one, 1));
  return model;
}

TEST_F(Solver, FindsTheOptimumOfASmallModel) {
  // Two intervals of size 3 and 4 that may not overlap, the second after 2; the end of both is minimized.
  Model model;
  const Var a = model.add_var(0, 20), b = model.add_var(std::vector<std::int64_t>{2, 5, 9});
  const Var end = model.add_var(0, 20);
  const std::int64_t intervals[] = {model.add_interval(a, 3, Affine(a, 3)),
                                    model.add_interval(b, 4, Affine(b, 4))};
  model.no_overlap(intervals);
  model.at_most(Affine(a, 3), end);
  model.at_most(Affine(b, 4), end);
  const std::int64_t one = 1;
  model.minimize(std::span(&end, 1), std::span(&one, 1));
  Limits limits;
  const Response response = solve(model, {}, limits);
  EXPECT_EQ(response.status, Status::kOptimal);
  EXPECT_EQ(response.objective, 9);
  EXPECT_EQ(response.bound, 9);
  ASSERT_EQ(response.solution.size(), 3u);
  EXPECT_EQ(response.solution[1], 5);
  ASSERT_FALSE(response.improvements.empty());
  EXPECT_EQ(response.improvements.back().objective, 9);
}

TEST_F(Solver, KnowsEnforcementNegationAndEquality) {
  Model model;
  const Literal yes = model.add_bool();
  const Var x = model.add_var(0, 9), y = model.add_var(0, 9);
  const Literal no = !yes;
  model.equal(x, Affine(y, 4), std::span(&yes, 1));
  model.at_most(9, x, std::span(&no, 1));
  model.at_most(5, y);
  const Var objective[] = {x, yes.var()};
  const std::int64_t coefficients[] = {1, -20};
  model.minimize(objective, coefficients);
  Limits limits;
  const Response response = solve(model, {}, limits);
  EXPECT_EQ(response.status, Status::kOptimal);
  EXPECT_EQ(response.solution, (std::vector<std::int64_t>{1, 9, 5}));
  EXPECT_EQ(response.objective, -11);
}

TEST_F(Solver, TellsInfeasibleFromInvalid) {
  Limits limits;
  Model infeasible;
  const Var x = infeasible.add_var(0, 3);
  infeasible.at_most(4, x);
  EXPECT_EQ(solve(infeasible, {}, limits).status, Status::kInfeasible);

  Model invalid;
  invalid.at_most(Affine(Var{7}), 3);
  const Response response = solve(invalid, {}, limits);
  EXPECT_EQ(response.status, Status::kModelInvalid);
  EXPECT_NE(response.message.find("variable"), std::string::npos) << response.message;
}

TEST_F(Solver, StopsAtTheTimeLimit) {
  Limits limits;
  limits.set_time(0.5);
  const Response response = solve(hard_model(300), {}, limits);
  EXPECT_NE(response.status, Status::kOptimal);
  EXPECT_LT(limits.seconds(), 0.5 + 0.5);
  EXPECT_GT(limits.seconds(), 0.4);
}

TEST_F(Solver, StopsWhenAnotherThreadAsksForIt) {
  std::atomic<bool> stop{false};
  Limits limits;
  limits.set_stop(&stop);
  std::thread other([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(300));
    stop = true;
  });
  const Response response = solve(hard_model(300), {}, limits);
  other.join();
  EXPECT_NE(response.status, Status::kOptimal);
  EXPECT_LT(limits.seconds(), 0.3 + 0.7);
  EXPECT_EQ(limits.stopped_by(), StoppedBy::kInterrupted);
}

TEST_F(Solver, GivesTheSameAnswerTwiceWithAWorkLimit) {
  Response responses[2];
  for (Response& response : responses) {
    Limits limits;
    limits.set_work(static_cast<std::int64_t>(0.02 * kUnitsPerDeterministicSecond));
    Parameters parameters;
    parameters.threads = 2;
    response = solve(hard_model(80), parameters, limits);
    EXPECT_GT(limits.work(), 0);
  }
  EXPECT_TRUE(responses[0].has_solution());
  EXPECT_EQ(responses[0].solution, responses[1].solution);
  EXPECT_EQ(responses[0].bound, responses[1].bound);
}

TEST_F(Solver, StartsFromAHint) {
  Model model = hard_model(40);
  Limits limits;
  Parameters brief;
  brief.deterministic_seconds = 0.02;
  const Response first = solve(model, brief, limits);
  ASSERT_TRUE(first.has_solution());
  for (std::size_t i = 0; i < first.solution.size(); ++i) {
    model.hint(Var{static_cast<std::int64_t>(i)}, first.solution[i]);
  }
  const Response second = solve(model, brief, limits);
  ASSERT_FALSE(second.improvements.empty());
  EXPECT_EQ(second.improvements.front().objective, first.objective);
}

}  // namespace
}  // namespace remat::cpsat
