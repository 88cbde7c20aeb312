// Bounds for plans with copies: below every plan found by brute force, and their values in known cases.
#include "bounds/host.h"

#include <gtest/gtest.h>

#include "base/numbers.h"
#include "exact/offload_moment.h"
#include "helpers/copies_oracle.h"
#include "helpers/graphs.h"
#include "helpers/hosts.h"
#include "helpers/long.h"

namespace remat {
namespace {

using testing::host_of;
using testing::kBytesPerUs;

Duration bound_of(const Graph& graph, Bytes budget, const Host& host) {
  Limits none;
  return host_duration_bound(graph, budget, OrderMode::kFixed, host, none).duration;
}

Host random_host(Random& random) {
  Host host{.out = kBytesPerUs / 2 * (1 + random.below(16)),
            .in = kBytesPerUs / 2 * (1 + random.below(16)),
            .latency_ns = random.chance(0.3) ? 1000 : 0,
            .budget = std::nullopt,
            .shared = random.chance(0.3)};
  if (random.chance(0.3)) host.budget = Bytes(1 + random.below(12));
  return host;
}

TEST(HostBounds, AreBelowEveryPlanOfBruteForce) {
  Random random(18);
  int points = 0, above_base = 0, tight = 0;
  const int graphs = testing::draws(50, 150);
  for (int i = 0; i < graphs; ++i) {
    Graph graph = testing::random_graph(random, {.min_ops = 3, .max_ops = 5, .max_values = 5});
    graph.time_unit = "us";
    const Host host = random_host(random);
    const Bytes floor = host_peak_bound(graph).peak;
    for (const auto& [peak, least] : testing::best_with_copies(graph, host, 1, 2)) {
      const Duration bound = bound_of(graph, peak, host);
      ASSERT_GE(peak, floor) << i;
      ASSERT_LE(bound, least) << "graph " << i << " at " << peak.count() << ": out " << host.out << ", in "
                              << host.in << ", latency " << host.latency_ns << "\n";
      ++points;
      above_base += bound > graph.base_duration;
      tight += bound == least;
    }
  }
  EXPECT_GT(points, graphs);
  EXPECT_GT(above_base, points / 10);
  EXPECT_GT(tight, points / 2);
  RecordProperty("points", points);
  RecordProperty("above_base", above_base);
  RecordProperty("tight", tight);
}

TEST(HostBounds, FallWithTheBandwidthFromRecomputationToNothing) {
  Graph graph = testing::training_chain(12, 1000, 10);
  graph.time_unit = "us";
  const Bytes budget(7000);
  Duration before = kTooLong;
  for (double rate : {1.0, 10.0, 100.0, 1000.0, 1e5}) {
    const Duration bound = bound_of(graph, budget, host_of(rate));
    EXPECT_LE(bound, before) << rate;
    before = bound;
  }
  EXPECT_EQ(before, graph.base_duration);
  // A link that is too slow for anything leaves the bound without a host.
  Limits none;
  EXPECT_GT(bound_of(graph, budget, host_of(1e-3)), graph.base_duration);
}

TEST(HostBounds, KnowTheBudgetOfTheHost) {
  Graph graph = testing::training_chain(12, 1000, 10);
  graph.time_unit = "us";
  Host host = host_of(1e5);
  EXPECT_EQ(bound_of(graph, Bytes(7000), host), graph.base_duration);
  host.budget = Bytes(1000);
  EXPECT_GT(bound_of(graph, Bytes(7000), host), graph.base_duration);
}

TEST(HostBounds, LookNearerAtTheDearestMoment) {
  const Graph graph = testing::training_step("unet", {.batch = 32});
  const Bytes budget(simulate(graph, keep_all_plan(graph)).peak.count() * 3 / 10);
  const Host host{.out = 25'000'000'000, .in = 25'000'000'000, .budget = std::nullopt};
  Limits none;
  Duration of_eight;
  for (OpId op : scarce_moments(graph, budget, 8)) {
    of_eight = std::max(of_eight, offload_bound(graph, op, budget, host, none));
  }
  const Duration extra = bound_of(graph, budget, host) - graph.base_duration;
  EXPECT_GT(real(extra), 1.1 * real(of_eight));
}

TEST(HostBounds, OfFreeOrderClaimNoMoreThanEveryOpOnce) {
  Graph graph = testing::training_chain(12, 1000, 10);
  graph.time_unit = "us";
  Limits none;
  EXPECT_EQ(host_duration_bound(graph, Bytes(4000), OrderMode::kFree, host_of(1e-3), none).duration,
            graph.base_duration);
}

}  // namespace
}  // namespace remat
