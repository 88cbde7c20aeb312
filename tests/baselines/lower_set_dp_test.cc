#include "baselines/lower_set_dp/lower_set_dp.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "helpers/graphs.h"
#include "helpers/reproduce.h"
#include "remat/error.h"
#include "remat/generate.h"
#include "remat/keep_all.h"
#include "remat/planner.h"

namespace remat::lower_set_dp {
namespace {

using Nodes = std::set<std::int32_t>;

ForwardGraph random_forward(Random& random) {
  ForwardGraph graph;
  const auto n = static_cast<std::int32_t>(random.between(1, 6));
  graph.before.resize(static_cast<std::size_t>(n));
  graph.after.resize(static_cast<std::size_t>(n));
  for (std::int32_t v = 0; v < n; ++v) {
    graph.bytes.push_back(random.between(0, 9));
    graph.time.push_back(random.between(0, 5));
    for (std::int32_t p = 0; p < v; ++p) {
      if (!random.chance(0.45)) continue;
      graph.before[static_cast<std::size_t>(v)].push_back(p);
      graph.after[static_cast<std::size_t>(p)].push_back(v);
    }
  }
  return graph;
}

Nodes nodes_of(const Set& set, std::size_t n) {
  Nodes result;
  for (std::size_t v = 0; v < n; ++v) {
    if ((set[v / 64] >> (v % 64)) & 1) result.insert(static_cast<std::int32_t>(v));
  }
  return result;
}

/// All increasing sequences of lower sets up to the whole, costed by the formulas of section 3 as they stand.
struct Brute {
  const ForwardGraph& graph;
  std::vector<Nodes> family;
  std::int64_t budget;
  std::optional<std::int64_t> least, most;

  std::int64_t bytes(const Nodes& set) const { return sum(set, graph.bytes); }
  static std::int64_t sum(const Nodes& set, const std::vector<std::int64_t>& weight) {
    std::int64_t total = 0;
    for (std::int32_t v : set) total += weight[static_cast<std::size_t>(v)];
    return total;
  }
  static Nodes minus(const Nodes& a, const Nodes& b) {
    Nodes result;
    std::set_difference(a.begin(), a.end(), b.begin(), b.end(), std::inserter(result, result.end()));
    return result;
  }
  Nodes around(const Nodes& set, const std::vector<std::vector<std::int32_t>>& rows) const {
    Nodes result;
    for (std::int32_t v : set)
      result.insert(rows[static_cast<std::size_t>(v)].begin(), rows[static_cast<std::size_t>(v)].end());
    return result;
  }
  /// The lowest memory of each recomputation time, as the table keeps it, by brute force.
  void extend(const Nodes& set, const Nodes& cached, std::int64_t time) {
    if (set.size() == graph.size()) {
      least = std::min(least.value_or(time), time);
      most = std::max(most.value_or(time), time);
      return;
    }
    for (const Nodes& next : family) {
      if (next.size() <= set.size() || !std::includes(next.begin(), next.end(), set.begin(), set.end()))
        continue;
      const Nodes part = minus(next, set);
      const Nodes after = around(next, graph.after);
      const std::int64_t memory = bytes(cached) + 2 * bytes(part) + bytes(minus(after, next)) +
                                  bytes(minus(around(after, graph.before), next));
      if (memory > budget) continue;
      Nodes boundary;
      for (std::int32_t v : next) {
        if (!minus(Nodes(graph.after[static_cast<std::size_t>(v)].begin(),
                         graph.after[static_cast<std::size_t>(v)].end()),
                   next)
                 .empty()) {
          boundary.insert(v);
        }
      }
      Nodes with = cached;
      with.insert(boundary.begin(), boundary.end());
      extend(next, with, time + sum(minus(part, boundary), graph.time));
    }
  }
};

TEST(LowerSetDp, EqualsBruteForceOverCanonicalStrategiesOnTwoThousandGraphs) {
  Random random(1);
  Limits limits;
  int feasible = 0, cut = 0;
  for (int round = 0; round < 2000; ++round) {
    const ForwardGraph graph = random_forward(random);
    auto sets = round % 2 == 0 ? *all_lower_sets(graph, 1000, limits) : pruned_lower_sets(graph, limits);
    Brute brute{graph, {}, 0, {}, {}};
    for (const Set& set : sets) brute.family.push_back(nodes_of(set, graph.size()));
    const Table table(graph, std::move(sets), 1000, limits);
    brute.budget = table.largest_budget() * random.between(30, 100) / 100;
    brute.extend({}, {}, 0);
    const Strategies found = table.solve(brute.budget, limits);
    ASSERT_EQ(found.time_centric.has_value(), brute.least.has_value());
    if (!brute.least) continue;
    ++feasible;
    cut += found.time_centric->sets.size() > 1;
    ASSERT_EQ(found.time_centric->time, *brute.least);
    ASSERT_EQ(found.memory_centric->time, *brute.most);
    for (const auto& strategy : {found.time_centric, found.memory_centric}) {
      const std::int64_t peak = canonical::formula_peak(graph, table.parts(*strategy));
      ASSERT_LE(peak, brute.budget);
      // Its own peak as the budget is enough to find one as fast.
      ASSERT_LE(table.solve(peak, limits).time_centric->time, strategy->time);
    }
  }
  EXPECT_GT(feasible, 500);
  EXPECT_GT(cut, 300);
}

TEST(LowerSetDp, CountsTheLowerSetsOfTheNetworksOfThePaper) {
  // Kusumoto et al., section 5: ResNet50 has 241 lower sets, ResNet152 581, VGG19 about 50.
  const auto sets = [](const char* model, std::int64_t depth) {
    TrainingOptions options;
    options.model = model;
    options.settings.depth = depth;
    const Graph graph = training_graph(options);
    Limits limits;
    return all_lower_sets(canonical::forward_graph(graph, *find_pairing(graph)), 10'000, limits)->size();
  };
  EXPECT_EQ(sets("resnet", 50), 241u);
  EXPECT_EQ(sets("resnet", 152), 581u);
  EXPECT_EQ(sets("vgg", 19), 47u);
}

TEST(LowerSetDp, CountsTheLowerSetsOfChainsAntichainsAndDiamonds) {
  Limits limits;
  const auto sets = [&](std::vector<std::vector<std::int32_t>> before) {
    ForwardGraph graph{std::move(before), {}, {}, {}};
    graph.bytes.assign(graph.before.size(), 1);
    return all_lower_sets(graph, 1000, limits)->size();
  };
  EXPECT_EQ(sets({{}, {0}, {1}, {2}}), 5u);
  EXPECT_EQ(sets({{}, {}, {}, {}}), 16u);
  EXPECT_EQ(sets({{}, {0}, {0}, {1, 2}}), 6u);
  ForwardGraph wide{std::vector<std::vector<std::int32_t>>(20), {}, std::vector<std::int64_t>(20, 1), {}};
  EXPECT_EQ(all_lower_sets(wide, 10'000, limits), std::nullopt);
  EXPECT_EQ(pruned_lower_sets(wide, limits).size(), 22u);
}

TEST(LowerSetDp, RefusesATableBeyondAGibibyte) {
  const Graph graph = chain({.length = 20'000});
  const Problem problem{&graph, keep_all_peak(graph)};
  const auto reason = find_planner("lower_set_dp").supports(problem);
  ASSERT_TRUE(reason);
  EXPECT_EQ(*reason, "its table over 20003 lower sets would take 6162 MiB, more than 1024");
}

TEST(LowerSetDp, AWorkLimitEndsItBeforeItsTableIsThere) {
  const Graph graph = chain({.length = 3'000});
  Limits limits;
  limits.set_work(3000);
  const PlanResult result = make_plan({&graph, Bytes(1000)}, "lower_set_dp", {}, limits);
  EXPECT_EQ(result.stopped_by, StoppedBy::kWork);
  EXPECT_LT(limits.work(), 10'000);
}

TEST(LowerSetDp, MeetsBudgetsOnChainsWithOneRecomputationOfMostOps) {
  for (int layers : {16, 64, 150}) {
    const Graph graph = testing::training_chain(layers);
    const auto peak = simulate(graph, keep_all_plan(graph)).peak.count();
    Limits limits;
    for (const char* family : {"all", "pruned"}) {
      const auto result =
          testing::recorded_plan({&graph, Bytes(peak / 2)}, "lower_set_dp",
                                 {.seed = 0, .threads = 1, .set = {{"family", family}}}, limits);
      ASSERT_TRUE(has_plan(result)) << layers;
      EXPECT_LE(overhead(graph, result.cost.duration), 0.5);
    }
  }
}

TEST(LowerSetDp, SaysWhatItCannotDo) {
  std::vector<testing::TestOp> ops(15, {{}, {1}});
  std::vector<std::int64_t> all;
  for (std::int64_t v = 0; v < 15; ++v) all.push_back(v);
  ops.push_back({all, {1}});
  for (std::int64_t v = 14; v >= 0; --v) ops.push_back({{v, 15}, {1}});
  const Graph wide = testing::make_graph({}, ops, {});
  Limits limits;
  const Problem problem{&wide, Bytes(20)};
  ASSERT_EQ(find_planner("lower_set_dp").supports(problem), std::nullopt);
  EXPECT_THROW(testing::recorded_plan(problem, "lower_set_dp",
                                      {.seed = 0, .threads = 1, .set = {{"family", "all"}}}, limits),
               UsageError);
  const Graph lone = testing::make_graph({}, {{{}, {1}}}, {});
  EXPECT_TRUE(find_planner("lower_set_dp").supports({&lone, Bytes(1)}));
}

}  // namespace
}  // namespace remat::lower_set_dp
