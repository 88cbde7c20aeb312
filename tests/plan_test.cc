#include "remat/plan.h"

#include <gtest/gtest.h>

namespace remat {
namespace {

// x(in,8) -> a(16) -> b(4) -> c(2, kept) reads a and b.
Graph diamond_tail() {
  GraphBuilder builder("tail");
  const std::int64_t x = builder.add_value(Bytes(8)), a = builder.add_value(Bytes(16));
  const std::int64_t b = builder.add_value(Bytes(4)), c = builder.add_value(Bytes(2));
  builder.add_input(x);
  builder.add_output(c);
  const auto op = [&](const char* name, std::int64_t t, std::vector<std::int64_t> in, std::int64_t out) {
    const std::int64_t outs[] = {out};
    OpSpec spec{.name = name, .duration = Duration(t), .inputs = in, .outputs = outs};
    builder.add_op(spec);
  };
  op("a", 3, {x}, a);
  op("b", 5, {a}, b);
  op("c", 7, {a, b}, c);
  return builder.build();
}

TEST(Simulate, CountsResidentInputsLiveInstancesAndOutputs) {
  const Graph g = diamond_tail();
  IndexVector<StepId, Bytes> memory;
  const Simulation cost = simulate(g, keep_all_plan(g), memory);
  EXPECT_EQ(memory.raw(), (std::vector<Bytes>{Bytes(24), Bytes(28), Bytes(30)}));
  EXPECT_EQ(cost.peak, Bytes(30));
  EXPECT_EQ(cost.peak_step, StepId(2));
  EXPECT_EQ(cost.duration, Duration(15));
}

}  // namespace
}  // namespace remat
