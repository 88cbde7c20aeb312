#include "pipeline/stage.h"

#include <gtest/gtest.h>

#include <functional>

#include "remat/random.h"

namespace remat::pipeline {
namespace {

BlockCurve random_curve(Random& random, int choices, std::int64_t most) {
  BlockCurve curve;
  for (int i = 0; i < choices; ++i) {
    BlockChoice choice;
    choice.saved = Bytes(random.between(1, most));
    choice.need = choice.saved + Bytes(random.between(0, most));
    choice.extra = Duration(random.between(0, most));
    curve.choices.push_back(choice);
  }
  return curve;
}

/// The definition, one block after the other.
bool fits(const std::vector<StageBlock>& blocks, const std::vector<int>& choices, std::int64_t room,
          bool joined) {
  const auto of = [&](std::size_t b) {
    return blocks[b].curve->choices[static_cast<std::size_t>(choices[b])];
  };
  std::int64_t all = 0;
  for (std::size_t b = 0; b < blocks.size(); ++b) all += blocks[b].in_flight * of(b).saved.count();
  for (std::size_t b = 0; b < blocks.size(); ++b) {
    std::int64_t there = all + of(b).need.count() - of(b).saved.count();
    for (std::size_t c = b + 1; joined && c < blocks.size(); ++c) there -= of(c).saved.count();
    if (there > room) return false;
  }
  return true;
}

std::optional<std::int64_t> least_extra(const std::vector<StageBlock>& blocks, std::int64_t room,
                                        bool joined) {
  std::optional<std::int64_t> least;
  std::vector<int> choices;
  const std::function<void(std::int64_t)> extend = [&](std::int64_t extra) {
    if (choices.size() == blocks.size()) {
      if (fits(blocks, choices, room, joined) && (!least || extra < *least)) least = extra;
      return;
    }
    const auto& curve = *blocks[choices.size()].curve;
    for (int o = 0; o < static_cast<int>(curve.choices.size()); ++o) {
      const Duration more = curve.choices[static_cast<std::size_t>(o)].extra;
      choices.push_back(o);
      extend(extra + more.count());
      choices.pop_back();
    }
  };
  extend(0);
  return least;
}

TEST(StageChoices, AreTheFastestOfAllThatFit) {
  Random random(11);
  int with = 0, without = 0;
  for (int round = 0; round < 3000; ++round) {
    const std::int64_t most = round % 3 == 0 ? 5 : 1000;
    std::vector<BlockCurve> curves;
    for (int k = 0; k < 2; ++k)
      curves.push_back(random_curve(random, 1 + static_cast<int>(random.below(4)), most));
    std::vector<StageBlock> blocks;
    const bool joined = random.chance(0.6);
    const int in_flight = 1 + static_cast<int>(random.below(4));
    for (int b = 1 + static_cast<int>(random.below(5)); b > 0; --b) {
      const int own = joined ? in_flight : 1 + static_cast<int>(random.below(4));
      blocks.push_back({&curves[static_cast<std::size_t>(random.below(2))], own});
    }
    const std::int64_t room = random.between(0, most * 4 * static_cast<std::int64_t>(blocks.size()));
    Limits limits;
    const auto found = choose(blocks, Bytes(room), joined, limits);
    const auto least = least_extra(blocks, room, joined);
    ASSERT_EQ(found.has_value(), least.has_value()) << "round " << round;
    if (!found) {
      ++without;
      continue;
    }
    ++with;
    EXPECT_TRUE(found->proved);
    EXPECT_EQ(found->extra.count(), *least) << "round " << round;
    EXPECT_TRUE(fits(blocks, found->choices, room, joined)) << "round " << round;
    std::int64_t sum = 0;
    for (std::size_t b = 0; b < blocks.size(); ++b) {
      sum += blocks[b].curve->choices[static_cast<std::size_t>(found->choices[b])].extra.count();
    }
    EXPECT_EQ(sum, *least);
  }
  EXPECT_GT(with, 500);
  EXPECT_GT(without, 500);
}

TEST(StageChoices, ClaimNoProofWhereTheyWereStopped) {
  Random random(2);
  const BlockCurve curve = random_curve(random, 40, 1'000'000);
  const std::vector<StageBlock> blocks(30, StageBlock{&curve, 3});
  Limits limits;
  limits.set_work(1);
  limits.spend(2);
  const auto found = choose(blocks, Bytes(200'000'000), true, limits);
  if (found) {
    EXPECT_FALSE(found->proved);
  }
  EXPECT_TRUE(limits.reached());
}

}  // namespace
}  // namespace remat::pipeline
