#include "remat/selection.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "remat/error.h"
#include "remat/random.h"

namespace remat {
namespace {

bool is_within(const SelectionProblem& problem, std::uint32_t chosen) {
  const auto has = [&](int i) { return (chosen >> i & 1) != 0; };
  std::vector<std::int64_t> level(problem.room.size());
  for (int i = 0; i < static_cast<int>(problem.items.size()); ++i) {
    if (!has(i)) continue;
    const Selectable& item = problem.items[static_cast<std::size_t>(i)];
    if (std::ranges::any_of(item.excludes, has)) return false;
    if (!std::ranges::all_of(item.needs, has)) return false;
    for (const Stretch& life : item.lives)
      for (int t = life.begin; t < life.end; ++t) level[static_cast<std::size_t>(t)] += life.bytes.count();
  }
  for (std::size_t t = 0; t < level.size(); ++t)
    if (level[t] > 0 && level[t] > problem.room[t].count()) return false;
  return true;
}

std::int64_t gain_of(const SelectionProblem& problem, std::uint32_t chosen) {
  std::int64_t gain = 0;
  for (std::size_t i = 0; i < problem.items.size(); ++i)
    if ((chosen >> i & 1) != 0) gain += problem.items[i].gain.count();
  return gain;
}

SelectionProblem random_problem(Random& random) {
  SelectionProblem problem;
  const int moments = 3 + static_cast<int>(random.below(6)), count = 1 + static_cast<int>(random.below(9));
  for (int t = 0; t < moments; ++t)
    problem.room.emplace_back(static_cast<std::int64_t>(random.below(25)) - 2);
  for (int i = 0; i < count; ++i) {
    Selectable item;
    item.gain = Duration(random.below(2000) - (random.below(4) == 0 ? 1500 : 0));
    for (int k = 0; k < 1 + static_cast<int>(random.below(2)); ++k) {
      const int begin = static_cast<int>(random.below(static_cast<std::uint64_t>(moments)));
      const int end = begin + static_cast<int>(random.below(static_cast<std::uint64_t>(moments - begin + 1)));
      item.lives.push_back({begin, end, Bytes(static_cast<std::int64_t>(random.below(12)))});
    }
    if (i > 0 && random.below(4) == 0) item.excludes = {0};
    if (i + 1 < count && random.below(5) == 0) item.needs = {i + 1};
    problem.items.push_back(item);
  }
  return problem;
}

TEST(Selection, gains_as_much_as_the_best_of_all_subsets) {
  Random random(7);
  for (int round = 0; round < 150; ++round) {
    const SelectionProblem problem = random_problem(random);
    std::int64_t best = 0;
    for (std::uint32_t chosen = 0; chosen < 1u << problem.items.size(); ++chosen)
      if (is_within(problem, chosen)) best = std::max(best, gain_of(problem, chosen));
    Limits limits;
    const Selection found = select_within(problem, limits);
    std::uint32_t chosen = 0;
    for (int i : found.items) chosen |= 1u << i;
    ASSERT_TRUE(is_within(problem, chosen)) << "round " << round;
    ASSERT_EQ(gain_of(problem, chosen), found.gain.count()) << "round " << round;
    // Within a thousandth, as documented.
    ASSERT_GE(static_cast<double>(found.gain.count()) * 1.002 + 1, static_cast<double>(best))
        << "round " << round;
    ASSERT_GE(found.bound.count(), best) << "round " << round;
  }
}

TEST(Selection, is_greedy_where_no_time_is_left) {
  SelectionProblem problem;
  problem.room = {Bytes(10), Bytes(10)};
  problem.items = {{Duration(5), {{0, 2, Bytes(8)}}}, {Duration(9), {{0, 1, Bytes(6)}}}};
  Limits limits;
  limits.set_time(0);
  const Selection found = select_within(problem, limits);
  EXPECT_EQ(found.items, std::vector<int>{1});
  EXPECT_GE(found.bound.count(), 9);
}

TEST(Selection, names_stretches_and_items_out_of_range) {
  SelectionProblem problem;
  problem.room = {Bytes(10)};
  problem.items = {{Duration(5), {{0, 2, Bytes(8)}}}};
  Limits limits;
  try {
    select_within(problem, limits);
    FAIL() << "accepted";
  } catch (const UsageError& error) {
    EXPECT_STREQ(error.what(), "item 0: [0, 2) is no stretch of 1 moments");
  }
  problem.items = {{Duration(5), {{0, 1, Bytes(8)}}, {3}}};
  EXPECT_THROW(select_within(problem, limits), UsageError);
}

}  // namespace
}  // namespace remat
