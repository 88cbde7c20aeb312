// Plans whose peak step is relieved, again and again.
#include "exact/relief.h"

#include <gtest/gtest.h>

#include "remat/plan.h"

namespace remat {
namespace {

constexpr int kBlocks = 200;

/// Blocks in a chain, each four bytes smaller than the one before:
///
///     begin --(1000 - 4 i bytes)--> end       beside them, between the two: middle, which needs 1000 bytes
///
/// The peak falls by four bytes with each `begin` that runs again.
Graph falling_peaks() {
  GraphBuilder builder("falling peaks");
  for (int i = 0; i < kBlocks; ++i) {
    const std::int64_t value = builder.add_value(Bytes(1000 - 4 * i));
    const std::int64_t made[] = {value};
    builder.add_op({.name = "begin", .duration = Duration(1), .outputs = made});
    builder.add_op({.name = "middle", .duration = Duration(1), .workspace = Bytes(1000)});
    builder.add_op({.name = "end", .duration = Duration(1), .inputs = made});
  }
  return builder.build();
}

struct Relieved {
  int scripts = 0;
  Bytes peak;  ///< of the last one
};
Relieved relieved(Bytes budget) {
  const Graph graph = falling_peaks();
  Relieved result;
  Limits limits;
  relieve(graph, script_of(keep_all_plan(graph)), budget, nullptr, limits, ReliefEffort::kFull,
          [&](const Script&, Bytes peak) {
            ++result.scripts;
            result.peak = peak;
            return true;
          });
  return result;
}

TEST(Relief, GoesOnWhereTheExcessMayBeGoneInTime) {
  const Relieved few = relieved(Bytes(2000 - 4 * 50));
  EXPECT_EQ(few.peak, Bytes(1800));
  EXPECT_EQ(few.scripts, 51);
}

TEST(Relief, GivesUpWhereTheExcessHardlyFalls) {
  const Relieved many = relieved(Bytes(2000 - 4 * (kBlocks - 1)));
  EXPECT_GT(many.peak, Bytes(1900));
  EXPECT_LT(many.scripts, 15);
}

}  // namespace
}  // namespace remat
