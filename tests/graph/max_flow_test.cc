#include "graph/max_flow.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "remat/random.h"

namespace remat {
namespace {

constexpr std::int64_t kAmple = 1'000'000;

struct Network {
  struct Arc {
    int from, to;
    std::int64_t capacity;
  };
  int nodes = 2;  ///< source and sink included
  std::vector<Arc> arcs;
};

MaxFlow flow_of(const Network& network) {
  MaxFlow flow;
  for (int n = 2; n < network.nodes; ++n) flow.add_node();
  for (const auto& arc : network.arcs) flow.set_capacity(flow.add_arc(arc.from, arc.to), arc.capacity);
  return flow;
}

/// Capacity of the arcs out of a set of nodes that holds the source.
std::int64_t cut_of(const Network& network, unsigned set) {
  std::int64_t sum = 0;
  for (const auto& arc : network.arcs) {
    if ((set >> arc.from & 1) && !(set >> arc.to & 1)) sum += arc.capacity;
  }
  return sum;
}

std::int64_t least_cut(const Network& network, unsigned& smallest_set) {
  std::int64_t least = -1;
  for (unsigned set = 0; set < 1U << network.nodes; ++set) {
    if (!(set >> MaxFlow::kSource & 1) || (set >> MaxFlow::kSink & 1)) continue;
    const std::int64_t cut = cut_of(network, set);
    const auto nodes = __builtin_popcount(set), best = __builtin_popcount(smallest_set);
    if (least < 0 || cut < least || (cut == least && nodes < best)) {
      least = cut;
      smallest_set = set;
    }
  }
  return least;
}

TEST(MaxFlow, EqualsTheLeastCutAndFindsItsSmallestSide) {
  Random random(5);
  for (int round = 0; round < 500; ++round) {
    Network network;
    network.nodes = static_cast<int>(random.between(2, 8));
    for (auto arcs = random.between(0, 20); arcs > 0; --arcs) {
      const int from = static_cast<int>(random.below(network.nodes));
      const int to = static_cast<int>(random.below(network.nodes));
      if (from == to) continue;
      network.arcs.push_back({from, to, random.below(6)});
    }
    unsigned side = 0;
    const std::int64_t least = least_cut(network, side);
    MaxFlow flow = flow_of(network);
    ASSERT_EQ(flow.solve(kAmple), least);
    for (int n = 0; n < network.nodes; ++n) ASSERT_EQ(flow.on_source_side(n), (side >> n & 1) != 0);
  }
}

TEST(MaxFlow, SolvesAgainWithOtherCapacities) {
  MaxFlow flow;
  const auto middle = flow.add_node();
  const auto in = flow.add_arc(MaxFlow::kSource, middle), out = flow.add_arc(middle, MaxFlow::kSink);
  flow.set_capacity(in, 7);
  flow.set_capacity(out, 3);
  EXPECT_EQ(flow.solve(kAmple), 3);
  flow.set_capacity(out, MaxFlow::kUnlimited);
  EXPECT_EQ(flow.solve(kAmple), 7);
  EXPECT_FALSE(flow.on_source_side(middle));
}

TEST(MaxFlow, SaysSoWhereItMayNotFinish) {
  MaxFlow flow;
  flow.set_capacity(flow.add_arc(MaxFlow::kSource, flow.add_node()), 1);
  EXPECT_EQ(flow.solve(0), -1);
  EXPECT_EQ(flow.solve(kAmple), 0);
}

}  // namespace
}  // namespace remat
