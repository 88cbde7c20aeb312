#include "baselines/chen/chen.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>

#include "helpers/graphs.h"
#include "helpers/reproduce.h"

namespace remat::chen {
namespace {

using canonical::ForwardGraph;

int components_without(const ForwardGraph& graph, std::int32_t removed) {
  std::vector<bool> seen(graph.size(), false);
  std::function<void(std::int32_t)> visit = [&](std::int32_t v) {
    if (v == removed || seen[static_cast<std::size_t>(v)]) return;
    seen[static_cast<std::size_t>(v)] = true;
    for (std::int32_t u : graph.before[static_cast<std::size_t>(v)]) visit(u);
    for (std::int32_t u : graph.after[static_cast<std::size_t>(v)]) visit(u);
  };
  int components = 0;
  for (std::int32_t v = 0; v < static_cast<std::int32_t>(graph.size()); ++v) {
    if (v == removed || seen[static_cast<std::size_t>(v)]) continue;
    ++components;
    visit(v);
  }
  return components;
}

TEST(Chen, FindsTheArticulationPointsByDefinition) {
  Random random(1);
  for (int round = 0; round < 500; ++round) {
    ForwardGraph graph;
    const auto n = static_cast<std::int32_t>(random.between(1, 12));
    graph.before.resize(static_cast<std::size_t>(n));
    graph.after.resize(static_cast<std::size_t>(n));
    graph.bytes.assign(static_cast<std::size_t>(n), 1);
    for (std::int32_t v = 0; v < n; ++v) {
      for (std::int32_t p = 0; p < v; ++p) {
        if (!random.chance(0.2)) continue;
        graph.before[static_cast<std::size_t>(v)].push_back(p);
        graph.after[static_cast<std::size_t>(p)].push_back(v);
      }
    }
    const auto points = articulation_points(graph);
    const int whole = components_without(graph, -1);
    for (std::int32_t v = 0; v < n; ++v) {
      ASSERT_EQ(points[static_cast<std::size_t>(v)], components_without(graph, v) > whole) << v;
    }
  }
}

TEST(Chen, TakesMemoryOfTheSquareRootOnChainsForOneMoreForwardPass) {
  for (int layers : {100, 400, 1600}) {
    const Graph graph = testing::training_chain(layers);
    Limits limits;
    const Problem problem{&graph, Bytes(static_cast<std::int64_t>(2.5 * std::sqrt(layers)) + 4)};
    const PlanResult result = testing::recorded_plan(problem, "chen", {}, limits);
    ASSERT_TRUE(has_plan(result)) << layers << " " << result.cost.peak.count();
    EXPECT_LE(overhead(graph, result.cost.duration), 0.5);
  }
}

TEST(Chen, ComparesCutsByTheFormulaWithoutLiveness) {
  const Graph graph = testing::training_chain(100);
  const Pairing pairing = *find_pairing(graph);
  const auto n = static_cast<std::int64_t>(pairing.first_backward.index());
  Limits limits;
  Problem problem{&graph};
  problem.objective = Objective::kPeak;
  PlanOptions off;
  off.set = {{"liveness", "off"}};
  const PlanResult with = testing::recorded_plan(problem, "chen", {}, limits);
  const PlanResult without = testing::recorded_plan(problem, "chen", off, limits);
  const auto formula = [](const PlanResult& result) {
    for (const auto& [name, value] : result.counters) {
      if (name == "formula_peak") return value;
    }
    return std::int64_t{-1};
  };
  // Segments of s ops of one byte: n / s are kept, a segment counts twice; the best is near 2 sqrt(2 n).
  EXPECT_NEAR(static_cast<double>(formula(without)), 2 * std::sqrt(2.0 * static_cast<double>(n)), 6);
  EXPECT_LE(formula(without), formula(with));
  EXPECT_LE(with.cost.peak, without.cost.peak);
}

}  // namespace
}  // namespace remat::chen
