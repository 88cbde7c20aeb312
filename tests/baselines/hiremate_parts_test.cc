// A user-defined partitioner and level solver; docs/planners/hiremate.md shows this file.
#include <gtest/gtest.h>

#include "helpers/graphs.h"
#include "remat/hiremate.h"

namespace remat::hiremate {
namespace {

/// Two groups: the first and the second half of the layers.
class Halves final : public Partitioner {
 public:
  std::string name() const override { return "halves"; }
  Nested partition(const TrainingGraph& training, Limits&) const override {
    Nested root{OpId(), {Nested(), Nested()}};
    for (OpId layer : training.layers()) {
      const bool second = 2 * layer.index() >= static_cast<std::int64_t>(training.num_layers());
      root.members[second ? 1 : 0].members.push_back({layer, {}});
    }
    return root;
  }
};

/// Runs the forward part of a group again before its backward part.
class Again final : public LevelSolver {
 public:
  std::string name() const override { return "again"; }
  std::vector<Option> options(const Level& level, const std::vector<LevelBudget>&, Limits&) const override {
    Option option{level.forward, level.forward, name()};
    option.backward.insert(option.backward.end(), level.backward.begin(), level.backward.end());
    return {option};
  }
};

TEST(HiremateParts, MakeAPlanWithinTheBudget) {
  const Graph graph = testing::training_chain(8, 10, 1);
  Settings settings;
  settings.partitioner = std::make_shared<Halves>();
  settings.lower = {std::make_shared<Again>(), h_ilp(settings)};
  settings.top = {h_ilp(settings)};
  const Bytes keep_all = simulate(graph, keep_all_plan(graph)).peak;
  const Problem problem{&graph, Bytes(keep_all.count() * 3 / 4)};
  Limits limits;
  const PlanResult result = plan(problem, settings, limits);
  ASSERT_TRUE(result.plan);
  EXPECT_LE(simulate(graph, *result.plan).peak, problem.budget);
}

}  // namespace
}  // namespace remat::hiremate
