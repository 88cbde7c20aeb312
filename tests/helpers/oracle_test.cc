#include "helpers/oracle.h"

#include <gtest/gtest.h>

#include "helpers/graphs.h"

namespace remat::testing {
namespace {

/// Every sequence of at most `length` steps, by the validator and the simulator alone.
struct Enumeration {
  const Graph& graph;
  OrderMode order;
  std::size_t length;
  std::optional<Bytes> least_peak;
  std::vector<std::pair<Bytes, Duration>> plans;
  std::vector<std::int64_t> steps;

  void run() {
    if (!validate(graph, steps, order)) {
      Plan plan;
      for (std::int64_t s : steps) plan.steps.push_back(OpId(s));
      const Simulation cost = simulate(graph, plan);
      plans.emplace_back(cost.peak, cost.duration);
      if (!least_peak || cost.peak < *least_peak) least_peak = cost.peak;
    }
    if (steps.size() == length) return;
    for (OpId op : graph.ops()) {
      steps.push_back(op.index());
      run();
      steps.pop_back();
    }
  }
};

TEST(Oracle, EqualsTheEnumerationOfAllShortPlans) {
  Random random(5);
  for (int round = 0; round < 60; ++round) {
    const Graph graph = random_graph(random, {.min_ops = 2, .max_ops = 4, .max_values = 5});
    for (OrderMode order : {OrderMode::kFixed, OrderMode::kFree}) {
      Enumeration all{graph, order, graph.num_ops() + (graph.num_ops() < 4 ? 4u : 3u), {}, {}, {}};
      all.run();
      ASSERT_EQ(oracle_min_peak(graph, order), *all.least_peak) << "round " << round;
      for (const auto& [budget, unused] : all.plans) {
        std::optional<Duration> least;
        for (const auto& [peak, duration] : all.plans) {
          if (peak <= budget && (!least || duration < *least)) least = duration;
        }
        ASSERT_EQ(oracle_min_duration(graph, order, budget), least) << "round " << round;
        if (all.plans.size() > 50) break;
      }
      ASSERT_FALSE(oracle_min_duration(graph, order, Bytes(all.least_peak->count() - 1)));
    }
  }
}

}  // namespace
}  // namespace remat::testing
