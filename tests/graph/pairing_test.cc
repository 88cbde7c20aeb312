#include "graph/pairing.h"

#include <gtest/gtest.h>

#include "helpers/graphs.h"

namespace remat {
namespace {

TEST(Pairing, IsDerivedAtTheLossOfATrainingChain) {
  for (int layers : {2, 5, 50}) {
    const auto pairing = find_pairing(testing::training_chain(layers));
    ASSERT_TRUE(pairing);
    EXPECT_TRUE(pairing->derived);
    EXPECT_EQ(pairing->first_backward, OpId(layers));
  }
}

TEST(Pairing, TakesThePhasesWhereTheyAreGiven) {
  GraphBuilder builder;
  for (int i = 0; i < 4; ++i) {
    const std::vector<std::int64_t> out{builder.add_value(Bytes(1))};
    const std::vector<std::int64_t> in =
        i == 0 ? std::vector<std::int64_t>{} : std::vector<std::int64_t>{i - 1};
    builder.add_op({.name = "op",
                    .duration = Duration(1),
                    .phase = i == 3 ? Phase::kBackward : Phase::kForward,
                    .inputs = in,
                    .outputs = out});
  }
  const auto pairing = find_pairing(builder.build());
  ASSERT_TRUE(pairing);
  EXPECT_FALSE(pairing->derived);
  EXPECT_EQ(pairing->first_backward, OpId(3));
}

TEST(Pairing, IsNotSeenInAPlainChain) {
  std::vector<testing::TestOp> ops{{{}, {1}}};
  for (std::int64_t i = 0; i < 30; ++i) ops.push_back({{i}, {1}});
  EXPECT_FALSE(find_pairing(testing::make_graph({}, ops, {})));
}

}  // namespace
}  // namespace remat
