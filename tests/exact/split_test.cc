#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <optional>

#include "base/numbers.h"
#include "helpers/errors.h"
#include "remat/error.h"
#include "remat/random.h"
#include "remat/selection.h"

namespace remat {
namespace {

/// By brute force: the cheapest choice that fits into `room`.
std::optional<Duration> cheapest(const SplitProblem& problem) {
  std::optional<Duration> best;
  std::vector<Bytes> left = problem.room;
  const std::function<void(std::size_t, Duration)> go = [&](std::size_t part, Duration cost) {
    if (part == problem.parts.size()) {
      if (!best || cost < *best) best = cost;
      return;
    }
    for (const SplitChoice& choice : problem.parts[part]) {
      bool fits = true;
      for (std::size_t m = 0; m < left.size(); ++m) {
        left[m] -= choice.bytes[m];
        fits = fits && left[m] >= Bytes();
      }
      if (fits) go(part + 1, cost + choice.cost);
      for (std::size_t m = 0; m < left.size(); ++m) left[m] += choice.bytes[m];
    }
  };
  go(0, Duration());
  return best;
}

/// Blocks in sequence: at the highest step of one, the earlier ones hold what they save.
SplitProblem random_blocks(Random& random) {
  const auto draw = [&](int below) {
    return static_cast<std::int64_t>(random.below(static_cast<std::uint64_t>(below)));
  };
  SplitProblem problem;
  const auto count = static_cast<std::size_t>(1 + draw(5));
  problem.room.assign(count, Bytes(10 + draw(60)));
  problem.parts.resize(count);
  for (std::size_t p = 0; p < count; ++p) {
    for (std::int64_t c = 0; c < 1 + draw(6); ++c) {
      SplitChoice choice{Duration(draw(1000)), std::vector<Bytes>(count)};
      const Bytes held(draw(20));
      choice.bytes[p] = held + Bytes(draw(15));
      for (std::size_t after = p + 1; after < count; ++after) choice.bytes[after] = held;
      problem.parts[p].push_back(choice);
    }
  }
  return problem;
}

TEST(Split, CostsWhatTheCheapestOfAllWaysCosts) {
  Random random(4);
  int none = 0, some = 0;
  for (int round = 0; round < 300; ++round) {
    const SplitProblem problem = random_blocks(random);
    const auto best = cheapest(problem);
    Limits limits;
    const Split found = split_within(problem, limits);
    ASSERT_TRUE(found.proved) << "round " << round;
    ASSERT_EQ(!found.choices.empty(), best.has_value()) << "round " << round;
    (best ? some : none) += 1;
    if (!best) continue;
    ASSERT_EQ(found.cost, *best) << "round " << round;
    ASSERT_EQ(found.bound, *best) << "round " << round;
  }
  EXPECT_GT(none, 30);
  EXPECT_GT(some, 100);
}

/// Convex curves of different steepness: no byte that one part gives up would gain more in another.
TEST(Split, PaysTheSamePriceForAByteInAllParts) {
  SplitProblem problem;
  problem.room = {Bytes(400)};
  for (std::int64_t steep : {1, 4, 9}) {
    auto& part = problem.parts.emplace_back();
    for (std::int64_t bytes = 0; bytes <= 200; ++bytes)
      part.push_back({Duration(steep * (200 - bytes) * (200 - bytes)), {Bytes(bytes)}});
  }
  Limits limits;
  const Split found = split_within(problem, limits);
  ASSERT_TRUE(found.proved);
  // 2 steep (200 - bytes) is the price: equal but for the last byte.
  std::vector<std::int64_t> prices;
  for (std::size_t p = 0; p < 3; ++p) {
    const std::int64_t steep = std::vector<std::int64_t>{1, 4, 9}[p];
    prices.push_back(2 * steep * (200 - found.choices[p]));
  }
  EXPECT_LE(std::ranges::max(prices) - std::ranges::min(prices), 2 * 9);
}

TEST(Split, RefusesChoicesThatLackAMoment) {
  SplitProblem problem;
  problem.room = {Bytes(1), Bytes(1)};
  problem.parts = {{{Duration(1), {Bytes(1)}}}};
  Limits limits;
  EXPECT_THROW(split_within(problem, limits), UsageError);
}

}  // namespace
}  // namespace remat
