#include "baselines/pw_remat/pw_remat.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "helpers/graphs.h"
#include "helpers/reproduce.h"
#include "remat/generate.h"

namespace remat::pw_remat {
namespace {

using testing::make_graph;
using testing::TestOp;
constexpr OrderMode kOrders[] = {OrderMode::kFixed, OrderMode::kFree};

/// o -> o -> o -> ... unit sizes and times, as all graphs of these tests.
Graph path_graph(int n) {
  std::vector<TestOp> ops{{{}, {1}}};
  for (std::int64_t i = 1; i < n; ++i) ops.push_back({{i - 1}, {1}});
  return make_graph({}, ops, {});
}

/// Two rows, both left to right, with rungs from the upper to the lower one; the upper row comes first.
///   a0 -> a1 -> a2 -> a3
///   |     |     |     |
///   v     v     v     v
///   b0 -> b1 -> b2 -> b3
Graph ladder(int n) {
  std::vector<TestOp> ops;
  for (std::int64_t i = 0; i < n; ++i) {
    ops.push_back({i == 0 ? std::vector<std::int64_t>{} : std::vector<std::int64_t>{i - 1}, {1}});
  }
  for (std::int64_t i = 0; i < n; ++i) {
    ops.push_back({i == 0 ? std::vector<std::int64_t>{0} : std::vector<std::int64_t>{i, n + i - 1}, {1}});
  }
  return make_graph({}, ops, {});
}

/// `rows` rows of n, row by row; each op reads its left and its upper neighbour.
Graph grid(int rows, int n) {
  std::vector<TestOp> ops;
  for (std::int64_t row = 0; row < rows; ++row) {
    for (std::int64_t i = 0; i < n; ++i) {
      std::vector<std::int64_t> reads;
      if (row > 0) reads.push_back((row - 1) * n + i);
      if (i > 0) reads.push_back(row * n + i - 1);
      ops.push_back({reads, {1}});
    }
  }
  return make_graph({}, ops, {});
}

struct Bounds {
  double length, memory;
};
/// Theorem 22 with the constants of its proof, for bags of at most p nodes: T <= 2^(p-1) (p!)^2 b log^(p-2) b
/// and M <= 2 S <= 2^(p+2) p (M_in + M_max) log^(p-2) b; with unit sizes M_max = 1 and M_in is the largest
/// in-degree.
Bounds theorem(const Ranked& ranked) {
  const double p = std::max(2, decomposition::width(ranked.path) + 1);
  const double bags = static_cast<double>(ranked.path.size());
  std::size_t reads = 0;
  for (const auto& row : ranked.inputs) reads = std::max(reads, row.size());
  const double logs = std::pow(std::log2(std::max(2.0, bags)), p - 2);
  return {std::pow(2.0, p - 1) * std::pow(std::tgamma(p + 1), 2) * bags * logs + p,
          std::pow(2.0, p + 2) * p * (static_cast<double>(reads) + 1) * logs};
}

TEST(PwRemat, MeetsTheoremSevenOnPathsLaddersAndGrids) {
  const auto check = [](const Graph& graph, const std::string& what) {
    for (OrderMode order : kOrders) {
      Limits limits;
      const Ranked spine = ranked(graph, order, limits);
      const Bounds bounds = theorem(spine);
      const auto steps = interleave(spine.inputs, spine.path, 1, 1 << 24, limits);
      ASSERT_TRUE(steps) << what;
      EXPECT_LE(static_cast<double>(steps->size()), bounds.length) << what << " " << to_string(order);
      const auto plan = plan_for(graph, spine, 1, 1 << 24, limits);
      ASSERT_TRUE(plan) << what;
      EXPECT_FALSE(validate(graph, *plan, order)) << what;
      EXPECT_LE(static_cast<double>(simulate(graph, *plan).peak.count()), bounds.memory)
          << what << " " << to_string(order);
    }
  };
  for (int n : {2, 3, 10, 100, 1000}) check(path_graph(n), "path of " + std::to_string(n));
  for (int n : {2, 3, 10, 100, 500}) check(ladder(n), "ladder of " + std::to_string(n));
  for (int n : {2, 3, 10, 100, 500}) check(testing::training_chain(n), "chain of " + std::to_string(n));
  for (int rows : {3, 4}) {
    for (int n : {4, 20, 60}) check(grid(rows, n), std::to_string(rows) + " by " + std::to_string(n));
  }
}

TEST(PwRemat, TakesPolylogarithmicMemoryAndTimeOnChainsAndLadders) {
  // The theorem's constants are loose; these are the measured values, which must not get worse.
  for (int n : {64, 256, 1024}) {
    const double logs = std::log2(2.0 * n);
    for (const Graph& graph : {testing::training_chain(n), ladder(n)}) {
      for (OrderMode order : kOrders) {
        Limits limits;
        const auto plan = plan_for(graph, ranked(graph, order, limits), 1, 1 << 24, limits);
        ASSERT_TRUE(plan);
        const Simulation cost = simulate(graph, *plan);
        EXPECT_LE(static_cast<double>(cost.peak.count()), 4 * logs) << n;
        EXPECT_LE(static_cast<double>(cost.duration.count()), logs * static_cast<double>(2 * n)) << n;
      }
    }
  }
}

decomposition::Adjacency with_spine(const Ranked& spine) {
  std::vector<std::pair<decomposition::Vertex, decomposition::Vertex>> edges;
  for (std::int32_t r = 0; r < static_cast<std::int32_t>(spine.order.size()); ++r) {
    if (r > 0) edges.emplace_back(r - 1, r);
    for (std::int32_t p : spine.inputs[static_cast<std::size_t>(r)]) edges.emplace_back(p, r);
  }
  return decomposition::adjacency(spine.order.size(), edges);
}

TEST(PwRemat, AddsASpineWithinTheBagBound) {
  // Theorem 8: bags of at most 2 pw + 3 nodes, that is width 2 pw + 2; covers graph and spine.
  Random random(3);
  for (int round = 0; round < 1000; ++round) {
    RandomDagOptions options;
    options.ops = random.between(1, 40);
    options.reads = static_cast<double>(random.between(1, 3));
    options.reach = random.between(0, 8);
    options.seed = static_cast<std::uint64_t>(round);
    const Graph graph = testing::recorded(random_dag(options));
    Limits limits;
    const Ranked spine = ranked(graph, OrderMode::kFree, limits);
    const auto defect = decomposition::find_defect(with_spine(spine), spine.path);
    ASSERT_FALSE(defect) << *defect << ", round " << round;
    ASSERT_LE(decomposition::width(spine.path), 2 * spine.path_width + 2) << "round " << round;
    std::vector<bool> seen(graph.num_ops(), false);
    for (std::int32_t r = 0; r < static_cast<std::int32_t>(spine.order.size()); ++r) {
      const auto v = static_cast<std::size_t>(spine.order[static_cast<std::size_t>(r)].index());
      ASSERT_FALSE(seen[v]);
      seen[v] = true;
      for (std::int32_t p : spine.inputs[static_cast<std::size_t>(r)]) ASSERT_LT(p, r);
    }
  }
}

/// Lemma 10: along the bags the last node rises to a single peak and falls from there.
TEST(PwRemat, HasOnePeakOfLastNodesInEveryLongSpinedDecomposition) {
  Random random(4);
  for (int round = 0; round < 300; ++round) {
    RandomDagOptions options;
    options.ops = random.between(2, 60);
    options.seed = static_cast<std::uint64_t>(round);
    const Graph graph = testing::recorded(random_dag(options));
    for (OrderMode order : kOrders) {
      Limits limits;
      const Ranked spine = ranked(graph, order, limits);
      const auto defect = decomposition::find_defect(with_spine(spine), spine.path);
      ASSERT_FALSE(defect) << *defect;
      bool falling = false;
      for (std::size_t i = 1; i < spine.path.size(); ++i) {
        const auto before = spine.path[i - 1].back(), here = spine.path[i].back();
        ASSERT_FALSE(falling && here > before) << "round " << round << ", bag " << i;
        falling = falling || here < before;
      }
    }
  }
}

TEST(PwRemat, GivesAValidPlanForEveryKInBothOrders) {
  Random random(1);
  Limits limits;
  for (int round = 0; round < 200; ++round) {
    testing::RandomShape shape;
    shape.max_ops = 25;
    shape.max_values = 40;
    const Graph graph = testing::random_graph(random, shape);
    for (OrderMode order : kOrders) {
      const Ranked spine = ranked(graph, order, limits);
      for (std::int64_t k : {1, 2, 3, 5, 9, 17, 100}) {
        const auto plan = plan_for(graph, spine, k, 100'000, limits);
        ASSERT_TRUE(plan);
        const auto violation = validate(graph, *plan, order);
        ASSERT_FALSE(violation) << violation->message << ", k " << k << ", " << to_string(order);
      }
      const auto whole = static_cast<std::int64_t>(spine.path.size()) + 1;
      const auto plan = plan_for(graph, spine, whole, 100'000, limits);
      EXPECT_EQ(recomputed_ops(graph, *plan), 0);
    }
  }
}

TEST(PwRemat, ComputesEveryInputBeforeItsReader) {
  Random random(2);
  for (int round = 0; round < 300; ++round) {
    RandomDagOptions options;
    options.ops = random.between(2, 50);
    options.reach = random.between(0, 6);
    options.seed = static_cast<std::uint64_t>(round);
    const Graph graph = testing::recorded(random_dag(options));
    Limits limits;
    const Ranked spine = ranked(graph, OrderMode::kFree, limits);
    const auto steps = interleave(spine.inputs, spine.path, 1, 1 << 20, limits);
    ASSERT_TRUE(steps);
    std::vector<bool> ran(graph.num_ops(), false);
    for (std::int32_t r : *steps) {
      for (std::int32_t p : spine.inputs[static_cast<std::size_t>(r)]) {
        ASSERT_TRUE(ran[static_cast<std::size_t>(p)]) << "round " << round << ": " << r << " reads " << p;
      }
      ran[static_cast<std::size_t>(r)] = true;
    }
    EXPECT_EQ(std::count(ran.begin(), ran.end(), true), std::ssize(ran));
  }
}

TEST(PwRemat, FindsPlansBetweenKeepAllAndTheSmallestPeak) {
  const Graph graph = testing::training_chain(128);
  Duration last = graph.base_duration;
  for (std::int64_t budget : {100, 70, 50, 30}) {
    Limits limits;
    const PlanResult result = testing::recorded_plan({&graph, Bytes(budget)}, "pw_remat", {}, limits);
    ASSERT_TRUE(has_plan(result)) << budget;
    EXPECT_GE(result.cost.duration, last);
    last = result.cost.duration;
  }
  EXPECT_LT(last, graph.base_duration + graph.base_duration);
  Limits none;
  none.set_work(1);
  const PlanResult stopped = testing::recorded_plan({&graph, Bytes(40)}, "pw_remat", {}, none);
  EXPECT_EQ(stopped.status, Status::kUnknown);
  EXPECT_EQ(stopped.stopped_by, StoppedBy::kWork);
}

}  // namespace
}  // namespace remat::pw_remat
