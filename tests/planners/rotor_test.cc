#include <gtest/gtest.h>

#include "helpers/graphs.h"
#include "helpers/oracle.h"
#include "helpers/reproduce.h"
#include "planners/rotor/chain_view.h"
#include "remat/generate.h"

namespace remat::rotor {
namespace {

/// A training chain of `layers` with sizes, times, workspaces and kept gradients of its own; backward i reads
/// the gradient, the input of forward i and, often, its output. At most 7 ops where layers <= 3.
Graph random_training_chain(Random& random, int layers, bool never) {
  GraphBuilder builder("chain");
  const std::int64_t x = builder.add_value(Bytes(random.below(4)));
  builder.add_input(x);
  std::vector<std::int64_t> forward{x};
  const auto add = [&](Phase phase, std::vector<std::int64_t> inputs, std::vector<std::int64_t> outputs) {
    builder.add_op({.name = "op",
                    .duration = Duration(random.between(0, 9)),
                    .workspace = Bytes(random.chance(0.3) ? random.below(5) : 0),
                    .recomputable = !(never && random.chance(0.15)),
                    .phase = phase,
                    .inputs = inputs,
                    .outputs = outputs});
  };
  for (int i = 0; i < layers; ++i) {
    forward.push_back(builder.add_value(Bytes(random.between(1, 9))));
    add(Phase::kForward, {forward[static_cast<std::size_t>(i)]}, {forward.back()});
  }
  std::int64_t gradient = builder.add_value(Bytes(random.between(1, 4)));
  add(Phase::kLoss, {forward.back()}, {gradient});
  for (int i = layers; i > 0; --i) {
    std::vector<std::int64_t> inputs{gradient, forward[static_cast<std::size_t>(i) - 1]};
    if (random.chance(0.5)) inputs.push_back(forward[static_cast<std::size_t>(i)]);
    gradient = builder.add_value(Bytes(random.between(1, 9)));
    std::vector<std::int64_t> outputs{gradient};
    if (random.chance(0.4)) {
      outputs.push_back(builder.add_value(Bytes(random.between(1, 3))));
      builder.add_output(outputs.back());
    }
    add(Phase::kBackward, inputs, outputs);
  }
  if (random.chance(0.5)) builder.add_output(gradient);
  return builder.build();
}

PlanResult plan_with(const Graph& graph, Bytes budget, PlanOptions options = {}) {
  Limits limits;
  return testing::recorded_plan({&graph, budget}, "rotor", options, limits);
}

Bytes keep_all(const Graph& graph) { return simulate(graph, keep_all_plan(graph)).peak; }

TEST(Rotor, IsOftenOptimalAmongAllPlansOfTinyTrainingChainsAndNeverBetter) {
  // Not always: the oracle also drops a checkpoint to make it again. That the table is exact for persistent
  // schedules is tested in rotor_chain_test.cc.
  Random random(1);
  int solvable = 0, optimal = 0;
  for (int round = 0; round < 2000; ++round) {
    const Graph graph = random_training_chain(random, static_cast<int>(random.between(2, 3)), false);
    const Bytes least = testing::oracle_min_peak(graph, OrderMode::kFixed), most = keep_all(graph);
    if (least == most) continue;
    const Bytes budget(random.between(least.count(), most.count() - 1));
    const auto truth = testing::oracle_min_duration(graph, OrderMode::kFixed, budget);
    const PlanResult result = plan_with(graph, budget);
    ++solvable;
    if (!has_plan(result)) continue;
    ASSERT_GE(result.cost.duration, *truth);
    optimal += result.cost.duration == *truth;
  }
  EXPECT_GT(solvable, 800);
  EXPECT_GT(optimal, solvable / 2);
}

/// Every view of the graph at budgets from the smallest to the largest: the plan keeps what the table
/// promised.
void expect_promises_kept(const Graph& graph, const Pairing& pairing) {
  for (const ChainView& view : chain_views(graph, pairing, 1000)) {
    const std::int64_t room = (keep_all(graph) - graph.resident).count();
    Limits limits;
    const ChainTable table(view.chain, room, 400, limits);
    for (std::int64_t percent = 10; percent <= 100; percent += 9) {
      const std::int64_t budget = room * percent / 100;
      const auto actions = table.schedule(budget);
      if (!actions) continue;
      const Plan plan = plan_of(graph, view, *actions);
      const auto violation = validate(graph, plan, OrderMode::kFixed, graph.resident + Bytes(budget));
      ASSERT_FALSE(violation) << violation->message << ", stages " << view.halves.size();
      ASSERT_LE(simulate(graph, plan).duration.count(),
                graph.base_duration.count() + *table.extra_time(budget));
    }
  }
}

TEST(Rotor, PlansTakeNoMoreMemoryAndTimeThanTheTablePromises) {
  Random random(2);
  for (int round = 0; round < 300; ++round) {
    const Graph graph =
        random_training_chain(random, static_cast<int>(random.between(2, 40)), round % 2 == 0);
    expect_promises_kept(graph, *find_pairing(graph));
  }
}

TEST(Rotor, KeepsItsPromisesOnModelsThatAreNoPlainChains) {
  for (const char* model : {"resnet", "unet", "gpt", "transformer", "mobilenet", "densenet"}) {
    for (bool random_recomputable : {true, false}) {
      TrainingOptions options;
      options.model = model;
      options.random_recomputable = random_recomputable;
      if (std::string(model) == "gpt") options.settings.depth = 4;
      if (std::string(model) == "transformer") options.optimizer = Optimizer::kAdam;
      const Graph graph = training_graph(options);
      SCOPED_TRACE(model);
      expect_promises_kept(graph, *find_pairing(graph));
    }
  }
}

TEST(Rotor, CutsTrainingChainsAtEveryLayer) {
  const Graph graph = testing::training_chain(50);
  const auto views = chain_views(graph, *find_pairing(graph), 1000);
  ASSERT_FALSE(views.empty());
  EXPECT_GE(views.back().halves.size(), 49u);
  EXPECT_EQ(views.back().held_values, 0);
  EXPECT_LE(chain_views(graph, *find_pairing(graph), 7).back().halves.size(), 7u);
}

TEST(Rotor, HoldsTheSkipsOfAUnetAndTheOutputOfAnEncoder) {
  for (const char* model : {"unet", "transformer"}) {
    TrainingOptions options;
    options.model = model;
    const Graph graph = training_graph(options);
    const auto views = chain_views(graph, *find_pairing(graph), 1000);
    ASSERT_FALSE(views.empty()) << model;
    EXPECT_TRUE(has_chain_view(graph, *find_pairing(graph), 1000)) << model;
    EXPECT_GT(views.back().halves.size(), 12u) << model;
    EXPECT_GT(views.back().held_values, 0) << model;
  }
}

TEST(Rotor, GoesOnBehindTheFirstViewWithAPlanWhereTheNextIsQuick) {
  const Graph graph = testing::training_step("unet");
  const Bytes budget(keep_all(graph).count() / 2);
  const auto duration = [&](const char* first, std::optional<std::int64_t> work) {
    Limits limits;
    if (work) limits.set_work(*work);
    const PlanOptions set{.set = {{"first", first}}};
    const PlanResult found = testing::recorded_plan({&graph, budget}, "rotor", set, limits);
    EXPECT_TRUE(has_plan(found)) << first;
    return found.cost.duration;
  };
  const Duration all = duration("off", std::nullopt), first = duration("on", std::nullopt);
  EXPECT_GT(first, all);
  EXPECT_EQ(duration("on", 100'000'000), all);
}

TEST(Rotor, SaysWhyItRefusesAGraph) {
  const auto reason = [](const Graph& graph) {
    const Problem problem{&graph, Bytes(1)};
    return find_planner("rotor").supports(problem).value_or("supported");
  };
  RandomLayeredOptions layered;
  EXPECT_EQ(reason(random_layered(layered)),
            "the graph has no backward pass that phases name or its structure shows");
  // Forward ops that only the backward pass reads.
  GraphBuilder builder;
  std::vector<std::int64_t> values;
  for (int i = 0; i < 6; ++i) {
    const std::int64_t made = builder.add_value(Bytes(1));
    builder.add_op(
        {.name = "op",
         .duration = Duration(1),
         .phase = i == 5 ? Phase::kBackward : Phase::kForward,
         .inputs = i == 5 ? std::span<const std::int64_t>(values) : std::span<const std::int64_t>(),
         .outputs = {&made, 1}});
    values.push_back(made);
  }
  EXPECT_EQ(reason(builder.build()),
            "the forward pass is no chain: there is no op whose outputs alone are read by later forward ops");
}

TEST(Rotor, NeedsLogarithmicMemoryWithUnitCosts) {
  // Revolve on 200 equal layers: a dozen of checkpoints and three more runs of each layer at most.
  const Graph graph = testing::training_chain(200);
  const PlanResult result =
      plan_with(graph, Bytes(16), {.seed = 0, .threads = 1, .set = {{"costs", "unit"}}});
  ASSERT_TRUE(has_plan(result));
  EXPECT_LT(result.cost.duration.count(), 400 + 3 * 200);
  const PlanResult given = plan_with(graph, Bytes(16));
  ASSERT_TRUE(has_plan(given));
  EXPECT_LE(given.cost.duration, result.cost.duration);
}

TEST(Rotor, ShowsThePlanThatComesClosestWhereNothingFits) {
  Random random(3);
  int over = 0;
  for (int round = 0; round < 100; ++round) {
    const Graph graph = random_training_chain(random, 20, true);
    const Bytes floor = best_peak_bound(graph, OrderMode::kFixed).peak;
    const PlanResult result = plan_with(graph, floor);
    ASSERT_TRUE(result.plan);
    if (has_plan(result)) continue;
    ++over;
    EXPECT_EQ(result.status, Status::kUnknown);
    EXPECT_LT(result.cost.peak, keep_all(graph));
  }
  EXPECT_GT(over, 10);
}

}  // namespace
}  // namespace remat::rotor
