// The validator against a quadratic check, and its messages.
#include <gtest/gtest.h>

#include "layout/random_buffers.h"
#include "remat/layout.h"

namespace remat {
namespace {

using testing::random_buffers;

TEST(ValidateLayout, AgreesWithEveryPairOfBuffers) {
  Random random(30);
  int valid = 0, overlapping = 0;
  for (int round = 0; round < 20'000; ++round) {
    const LayoutProblem problem = random_buffers(random, 5);
    std::vector<Bytes> offsets;
    for (std::size_t k = 0; k < problem.buffers.size(); ++k) {
      const std::int64_t step = random.chance(0.9) ? problem.alignment : 1;
      offsets.push_back(Bytes(random.between(0, 30) * step - (random.chance(0.02) ? 40 : 0)));
    }
    const Bytes arena(random.between(20, 60));
    const auto violation = validate_layout(problem, offsets, arena);
    const std::string fault = testing::fault_of(problem, offsets, arena);
    ASSERT_EQ(violation.has_value(), !fault.empty()) << testing::table_of(problem) << fault;
    valid += !violation;
    overlapping += violation && violation->rule == LayoutRule::kDisjoint;
  }
  EXPECT_GT(valid, 1000);
  EXPECT_GT(overlapping, 1000);
}

struct Broken {
  std::vector<Bytes> offsets;
  LayoutRule rule;
  std::string message;
};

TEST(ValidateLayout, NamesTheBrokenRuleThePlaceAndBothNumbers) {
  LayoutProblem problem;
  problem.alignment = 4;
  problem.buffers.push_back({0, 3, Bytes(8)});
  problem.buffers.push_back({2, 5, Bytes(4)});
  EXPECT_FALSE(validate_layout(problem, std::vector{Bytes(4), Bytes(0)}, Bytes(12)));
  const Broken cases[] = {
      {{Bytes(0)}, LayoutRule::kEveryBuffer, "1 offsets for 2 buffers"},
      {{Bytes(8), Bytes(0)},
       LayoutRule::kInRange,
       "buffer 0 at [8, 16) living in [0, 3) is outside the arena of 12 bytes"},
      {{Bytes(0), Bytes(-4)},
       LayoutRule::kInRange,
       "buffer 1 at [-4, 0) living in [2, 5) is outside the arena of 12 bytes"},
      {{Bytes(2), Bytes(0)},
       LayoutRule::kAligned,
       "buffer 0 at [2, 10) living in [0, 3) is not a multiple of 4"},
      {{Bytes(0), Bytes(4)},
       LayoutRule::kDisjoint,
       "buffer 1 at [4, 8) living in [2, 5) overlaps buffer 0 at [0, 8) living in [0, 3)"},
  };
  for (const Broken& broken : cases) {
    const auto violation = validate_layout(problem, broken.offsets, Bytes(12));
    ASSERT_TRUE(violation) << broken.message;
    EXPECT_EQ(violation->rule, broken.rule);
    EXPECT_EQ(violation->message, broken.message);
  }
}

}  // namespace
}  // namespace remat
