#include <gtest/gtest.h>

#include <algorithm>
#include <optional>

#include "base/numbers.h"
#include "executors/shape.h"
#include "helpers/reproduce.h"
#include "remat/error.h"
#include "remat/executor.h"
#include "remat/random.h"

namespace remat {
namespace {

using executors::Again;
using executors::Shape;

/// A training step of `forward` ops in `layers` numbered modules, with skips, several outputs, workspaces,
/// results written over others and random ops.
///
///   input -> [ layers.0: f0 f1 ] [ layers.1: f2 f3 ] -> loss | b3 b2 b1 b0, each with some of what f read or
///   made
class RandomStep {
 public:
  explicit RandomStep(Random& random) : random_(random) {}

  Graph make() {
    builder_.add_input(values_.emplace_back(builder_.add_value(Bytes(size()))));
    const int count = 3 + draw(4), layers = 1 + draw(3);
    for (int i = 0; i < count; ++i) add_forward(i, i * layers / count);
    const std::int64_t loss = builder_.add_value(Bytes(1));
    const std::array<std::int64_t, 1> read{made_.back().back()}, made{loss};
    builder_.add_op(
        {.name = "loss", .duration = Duration(1), .phase = Phase::kLoss, .inputs = read, .outputs = made});
    builder_.add_output(loss);
    gradient_ = loss;
    for (int i = count - 1; i >= 0; --i) add_backward(i);
    return testing::recorded(builder_.build());
  }

 private:
  int draw(int below) { return static_cast<int>(random_.below(static_cast<std::uint64_t>(below))); }
  std::int64_t size() { return 1 + draw(9); }

  void add_forward(int i, int layer) {
    std::vector<std::int64_t> inputs{values_.back()}, outputs{builder_.add_value(Bytes(size()))};
    if (draw(2) == 0) inputs.push_back(values_[at(draw(static_cast<int>(values_.size())))]);
    if (draw(4) == 0) outputs.push_back(builder_.add_value(Bytes(size())));
    module_.push_back(draw(8) == 0 ? "" : "layers." + std::to_string(layer) + ".fc");
    std::vector<std::array<std::int64_t, 2>> over;
    if (i > 0 && draw(3) == 0) over.push_back({values_.back(), outputs[0]});
    builder_.add_op({.name = "f" + std::to_string(i),
                     .module = module_.back(),
                     .duration = Duration(1 + draw(9)),
                     .workspace = Bytes(draw(3) == 0 ? size() : 0),
                     .generator_state = Bytes(draw(6) == 0 ? 2 : 0),
                     .recomputable = draw(8) != 0,
                     .phase = Phase::kForward,
                     .inputs = inputs,
                     .outputs = outputs,
                     .over = over});
    if (draw(12) == 0) builder_.add_output(outputs[0]);
    read_.push_back(inputs);
    made_.push_back(outputs);
    values_.push_back(outputs[0]);
  }

  void add_backward(int i) {
    std::vector<std::int64_t> inputs{gradient_};
    for (const auto* some : {&read_[at(i)], &made_[at(i)]}) {
      for (std::int64_t v : *some)
        if (draw(2) == 0) inputs.push_back(v);
    }
    if (draw(6) == 0) inputs.push_back(values_[at(draw(static_cast<int>(values_.size())))]);
    const std::array<std::int64_t, 1> made{builder_.add_value(Bytes(size()))};
    builder_.add_op({.name = "b" + std::to_string(i),
                     .module = module_[at(i)],
                     .duration = Duration(1 + draw(5)),
                     .workspace = Bytes(draw(3) == 0 ? size() : 0),
                     .phase = Phase::kBackward,
                     .forward_of = draw(2) == 0 ? i : -1,
                     .inputs = inputs,
                     .outputs = made});
    if (i == 0) builder_.add_output(made[0]);
    gradient_ = made[0];
  }

  Random& random_;
  GraphBuilder builder_{"step"};
  std::vector<std::int64_t> values_;  // of the chain
  std::vector<std::vector<std::int64_t>> read_, made_;
  std::vector<std::string> module_;
  std::int64_t gradient_ = -1;
};

/// By brute force over an executor's choices: the fastest within each budget, and the least peak.
struct All {
  std::vector<std::pair<Bytes, Duration>> costs;

  std::optional<Duration> fastest(Bytes budget) const {
    std::optional<Duration> best;
    for (const auto& [peak, duration] : costs)
      if (peak <= budget && (!best || duration < *best)) best = duration;
    return best;
  }
};

All all_choices(const Shape& shape) {
  const Graph& graph = *shape.graph;
  std::vector<OpId> free;
  for (OpId op : graph.ops())
    if (shape.may[op]) free.push_back(op);
  All all;
  for (std::uint32_t set = 0; set < 1u << free.size(); ++set) {
    Again again(graph.num_ops(), false);
    for (int i : indices(free)) again[free[at(i)]] = (set >> i & 1) != 0;
    if (executors::settled(shape, again) != again) continue;
    const Plan plan = executors::plan_of(shape, again);
    EXPECT_FALSE(validate(graph, plan, OrderMode::kFixed));
    const Simulation cost = simulate(graph, plan);
    all.costs.emplace_back(cost.peak, cost.duration);
  }
  return all;
}

/// The duration of its steps.
Duration total_of(const Graph& graph, const Plan& plan) {
  Duration total;
  for (OpId op : plan.steps) total += graph.duration[op];
  return total;
}

class ExecutorPlans : public ::testing::TestWithParam<Executor> {};

TEST_P(ExecutorPlans, are_as_fast_as_the_best_of_all_sets) {
  Random random(22);
  int with_choice = 0, infeasible = 0;
  for (int round = 0; round < 250; ++round) {
    const Graph graph = RandomStep(random).make();
    const auto shape = executors::shape_if_any(graph, GetParam());
    if (!shape) continue;
    const All all = all_choices(*shape);
    const Bytes most = simulate(graph, keep_all_plan(graph)).peak;
    Bytes least = most;
    for (const auto& [peak, duration] : all.costs) least = std::min(least, peak);
    for (Bytes budget = least - Bytes(1); budget <= most; budget += Bytes(1 + (most - least).count() / 5)) {
      Problem problem;
      problem.graph = &graph;
      problem.budget = budget;
      Limits limits;
      limits.set_work(50'000'000);
      const ExecutorPlan found = make_executor_plan(problem, GetParam(), {}, limits);
      const auto best = all.fastest(budget);
      ASSERT_EQ(has_plan(found.result), best.has_value())
          << "round " << round << " budget " << budget.count();
      if (!best) {
        ASSERT_EQ(found.result.status, Status::kInfeasible) << "round " << round;
        ASSERT_EQ(found.result.stopped_by, StoppedBy::kProof) << "round " << round;
        ++infeasible;
        continue;
      }
      ASSERT_EQ(found.result.cost.duration, *best) << "round " << round << " budget " << budget.count();
      ASSERT_EQ(found.result.status, Status::kOptimal) << "round " << round;
      ASSERT_EQ(found.result.duration_bound.duration, *best) << "round " << round;
      with_choice += *best > graph.base_duration;
    }
  }
  EXPECT_GT(with_choice, 100);
  EXPECT_GT(infeasible, 100);
}

/// Each op runs again, or any of its results are offloaded.
All all_choices_with_host(const Shape& shape, const Host& host) {
  const Graph& graph = *shape.graph;
  std::vector<OpId> ops;
  for (OpId op : graph.ops()) {
    if (shape.is_forward(op)) ops.push_back(op);
  }
  const auto choices_of = [&](OpId op) { return 1 + (1 << graph.outputs[op].size()); };
  int count = 1;
  for (OpId op : ops) count *= choices_of(op);
  All all;
  for (int set = 0; set < count; ++set) {
    executors::Choice choice{Again(graph.num_ops(), false), executors::Offloaded(graph.num_values(), false)};
    for (int rest = set; OpId op : ops) {
      const int one = rest % choices_of(op);
      rest /= choices_of(op);
      choice.again[op] = one == 0;
      for (int bits = one - 1; ValueId v : graph.outputs[op]) {
        choice.offloaded[v] = one > 0 && bits % 2 == 1;
        bits /= 2;
      }
    }
    const auto settled = executors::settled(shape, choice);
    if (!settled || settled->again != choice.again || settled->offloaded != choice.offloaded) continue;
    const Plan plan = executors::plan_of(shape, *settled);
    EXPECT_FALSE(validate(graph, plan, OrderMode::kFixed));
    const Simulation cost = simulate(graph, plan, &host);
    EXPECT_EQ(cost.duration - total_of(graph, plan), cost.traffic.stalled);
    all.costs.emplace_back(cost.peak, cost.duration);
  }
  return all;
}

TEST(ExecutorPlansWithHost, are_near_the_best_of_all_choices_and_fit_where_one_does) {
  Random random(23);
  int copied = 0, only_with_host = 0, missed = 0, slower = 0, plans = 0;
  Duration total, least_total;
  for (int round = 0; round < 120; ++round) {
    Graph graph = RandomStep(random).make();
    graph.time_unit = "us";
    const auto without = executors::shape_if_any(graph, Executor::kPartitioner);
    if (!without) continue;
    const Host host{
        .out = 4'000'000, .in = 2'000'000, .budget = std::nullopt};  // 4 and 2 bytes a unit of time
    const Shape shape = executors::shape_of(graph, Executor::kPartitioner, host);
    const All all = all_choices_with_host(shape, host), none = all_choices(*without);
    const Bytes most = simulate(graph, keep_all_plan(graph)).peak;
    Bytes least = most;
    for (const auto& [peak, duration] : all.costs) least = std::min(least, peak);
    for (Bytes budget = least; budget < most; budget += Bytes(1 + (most - least).count() / 3)) {
      Problem problem;
      problem.graph = &graph;
      problem.budget = budget;
      problem.host = host;
      Limits limits;
      limits.set_work(10'000'000);
      const PlanResult found = make_executor_plan(problem, Executor::kPartitioner, {}, limits).result;
      const auto best = all.fastest(budget);
      ++plans;
      if (!has_plan(found)) {
        ++missed;
        continue;
      }
      ASSERT_LE(found.cost.peak, budget) << "round " << round;
      ASSERT_GE(found.cost.duration, *best) << "round " << round;
      ASSERT_LE(found.duration_bound.duration, *best) << "round " << round;
      slower += found.cost.duration > *best;
      total += found.cost.duration;
      least_total += *best;
      copied += !found.plan->copies.empty();
      only_with_host += !none.fastest(budget).has_value();
    }
  }
  EXPECT_GT(copied, 50);
  EXPECT_GT(only_with_host, 20);
  EXPECT_LE(missed, plans / 50);
  EXPECT_LE(slower, plans / 3);
  EXPECT_LE(real(total), 1.05 * real(least_total));
}

INSTANTIATE_TEST_SUITE_P(Executors, ExecutorPlans,
                         ::testing::Values(Executor::kPartitioner, Executor::kCheckpoint),
                         [](const auto& one) { return std::string(to_string(one.param)); });

}  // namespace
}  // namespace remat
