#include "remat/hiremate.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>

#include "baselines/hiremate/greedy_runs.h"
#include "baselines/hiremate/hierarchy.h"
#include "baselines/hiremate/same_groups.h"
#include "helpers/graphs.h"
#include "helpers/long.h"
#include "helpers/reproduce.h"
#include "lp/highs.h"
#include "remat/error.h"
#include "remat/generate.h"

namespace remat::hiremate {
namespace {

Graph model(std::string name) {
  TrainingOptions options;
  options.model = std::move(name);
  return training_graph(options);
}

Bytes keep_all_peak(const Graph& graph) { return simulate(graph, keep_all_plan(graph)).peak; }

/// A training step over a random forward graph: every forward op has one backward op that reads its inputs
/// and the gradients of its readers.
Graph random_training(Random& random, int layers) {
  GraphBuilder builder;
  std::vector<std::int64_t> made, gradient(static_cast<std::size_t>(layers), -1);
  std::vector<std::vector<std::int64_t>> reads;
  for (int i = 0; i < layers; ++i) {
    std::vector<std::int64_t> inputs, before;
    for (int p = 0; p < i; ++p) {
      if (p + 1 != i && !random.chance(0.15)) continue;
      inputs.push_back(made[static_cast<std::size_t>(p)]);
      before.push_back(p);
    }
    made.push_back(builder.add_value(Bytes(random.between(1, 100))));
    const std::vector<std::int64_t> outputs{made.back()};
    OpSpec op;
    op.duration = Duration(random.between(1, 20));
    op.workspace = Bytes(random.between(0, 10));
    op.phase = Phase::kForward;
    op.inputs = inputs;
    op.outputs = outputs;
    builder.add_op(op);
    reads.push_back(before);
  }
  for (int i = layers - 1; i >= 0; --i) {
    std::vector<std::int64_t> inputs{made[static_cast<std::size_t>(i)]};
    for (int r = i + 1; r < layers; ++r) {
      const auto& before = reads[static_cast<std::size_t>(r)];
      if (std::find(before.begin(), before.end(), i) != before.end())
        inputs.push_back(gradient[static_cast<std::size_t>(r)]);
    }
    gradient[static_cast<std::size_t>(i)] = builder.add_value(Bytes(random.between(1, 100)));
    const std::vector<std::int64_t> outputs{gradient[static_cast<std::size_t>(i)]};
    OpSpec op;
    op.duration = Duration(random.between(1, 40));
    op.phase = Phase::kBackward;
    op.forward_of = i;
    op.inputs = inputs;
    op.outputs = outputs;
    builder.add_op(op);
    if (reads[static_cast<std::size_t>(i)].empty()) builder.add_output(gradient[static_cast<std::size_t>(i)]);
  }
  return builder.build();
}

/// A chain with phases: backward i reads the values of forward i and i - 1 and the gradient of i + 1.
Graph phased_chain(const std::vector<std::int64_t>& bytes, std::int64_t gradient_bytes) {
  const auto n = static_cast<std::int64_t>(bytes.size());
  GraphBuilder builder;
  for (std::int64_t i = 0; i < n; ++i) builder.add_value(Bytes(bytes[static_cast<std::size_t>(i)]));
  for (std::int64_t i = 0; i < n; ++i) builder.add_value(Bytes(gradient_bytes));
  const auto add = [&](std::int64_t i, Phase phase, std::vector<std::int64_t> inputs, std::int64_t output) {
    const std::vector<std::int64_t> outputs{output};
    OpSpec op;
    op.duration = Duration(1);
    op.phase = phase;
    op.forward_of = phase == Phase::kBackward ? i : -1;
    op.inputs = inputs;
    op.outputs = outputs;
    builder.add_op(op);
  };
  for (std::int64_t i = 0; i < n; ++i)
    add(i, Phase::kForward, i == 0 ? std::vector<std::int64_t>{} : std::vector<std::int64_t>{i - 1}, i);
  for (std::int64_t i = n - 1; i >= 0; --i) {
    std::vector<std::int64_t> inputs{i};
    if (i > 0) inputs.push_back(i - 1);
    if (i + 1 < n) inputs.push_back(n + i + 1);
    add(i, Phase::kBackward, inputs, n + i);
  }
  builder.add_output(n);
  return builder.build();
}

Settings small(std::int64_t top, std::int64_t lower) {
  Settings settings;
  settings.most_top = top;
  settings.most_lower = lower;
  return settings;
}

Partition partition_with(const TrainingGraph& training, const Partitioner& partitioner) {
  Limits limits;
  return make_partition(training, partitioner.partition(training, limits));
}

/// Convexity by definition: no path leaves a group and comes back.
bool is_convex(const TrainingGraph& training, const std::vector<OpId>& layers) {
  std::vector<bool> inside(training.num_layers(), false), below(training.num_layers(), false);
  for (OpId layer : layers) inside[static_cast<std::size_t>(layer.index())] = true;
  for (OpId layer : training.layers()) {
    const auto i = static_cast<std::size_t>(layer.index());
    bool left = false, met = false;  // comes after something outside that comes after the group
    for (OpId p : training.before[layer]) {
      const auto b = static_cast<std::size_t>(p.index());
      met = met || inside[b] || below[b];
      left = left || (below[b] && !inside[b]);
    }
    if (inside[i] && left) return false;
    below[i] = met;
  }
  return true;
}

TEST(HPartition, GroupsOfRandomGraphsAreConvexAndSmallEnough) {
  Random random(3);
  for (int round = 0; round < 200; ++round) {
    const Graph graph = random_training(random, static_cast<int>(random.between(2, 40)));
    const TrainingGraph training = pair_layers(graph);
    const Settings settings = small(random.between(2, 8), random.between(2, 8));
    const Partition partition = partition_with(training, *h_partition(settings));
    const auto wrong = check_partition(training, partition);
    ASSERT_FALSE(wrong) << *wrong;
    for (GroupId g : partition.groups.ids()) {
      ASSERT_TRUE(is_convex(training, layers_of(partition, g)));
      const auto most = static_cast<std::size_t>(
          g == partition.root ? std::max(settings.most_top, settings.most_lower) : settings.most_lower);
      ASSERT_LE(partition.groups[g].members.size(), std::max(most, std::size_t{2}));
    }
  }
}

TEST(HPartition, TakesTheCheapestCandidateFirst) {
  // A chain whose middle value is small: with room for two nodes the cut goes through it.
  //   0 -100- 1 -100- 2 -1- 3 -100- 4 -100- 5
  const Graph graph = phased_chain({100, 100, 1, 100, 100, 100}, 1);
  const TrainingGraph training = pair_layers(graph);
  ASSERT_EQ(training.num_layers(), 6u);
  const Partition partition = partition_with(training, *h_partition(small(2, 3)));
  const auto& members = partition.groups[partition.root].members;
  ASSERT_EQ(members.size(), 2u);
  EXPECT_EQ(layers_of(partition, members[0]), (std::vector<OpId>{OpId(0), OpId(1), OpId(2)}));
  EXPECT_EQ(layers_of(partition, members[1]), (std::vector<OpId>{OpId(3), OpId(4), OpId(5)}));
}

TEST(Partition, RefusesGroupsThatAreNotConvex) {
  const Graph graph = testing::training_chain(4);
  const TrainingGraph training = pair_layers(graph);
  const auto list = [](std::vector<Nested> members) { return Nested{OpId(), std::move(members)}; };
  const auto leaf = [](int i) { return Nested{OpId(i), {}}; };
  const auto message = [&](const Nested& nested) -> std::string {
    try {
      make_partition(training, nested);
    } catch (const UsageError& error) {
      return error.what();
    }
    return "";
  };
  EXPECT_EQ(message(list({list({leaf(0), leaf(1)}), leaf(2), leaf(3)})), "");
  EXPECT_NE(message(list({list({leaf(0), leaf(2)}), list({leaf(1), leaf(3)})})).find("not convex"),
            std::string::npos);
  EXPECT_NE(message(list({leaf(0), leaf(1), leaf(2)})).find("is in no group"), std::string::npos);
  EXPECT_NE(message(list({leaf(0), leaf(1), leaf(2), leaf(3), leaf(1)})).find("in two groups"),
            std::string::npos);
}

TEST(Sequence, CutsAChainOfBlocksWhereOneLayerCarriesAll) {
  const Graph graph = model("mlp_mixer");
  const TrainingGraph training = pair_layers(graph);
  const Partition partition = partition_with(training, *sequence());
  EXPECT_FALSE(check_partition(training, partition));
  EXPECT_GT(partition.groups[partition.root].members.size(), 12u);
}

TEST(Canonical, FindsRepeatedBlocksAndTranslatesTheirOptions) {
  const Graph graph = testing::training_chain(9, 5, 3);
  const TrainingGraph training = pair_layers(graph);
  Nested root;
  for (int b = 0; b < 3; ++b) {
    Nested block;
    for (int i = 0; i < 3; ++i) block.members.push_back({OpId(3 * b + i), {}});
    root.members.push_back(std::move(block));
  }
  const Partition partition = make_partition(training, root);
  Limits limits;
  const auto same = representatives(training, partition, limits);
  const auto& members = partition.groups[partition.root].members;
  // The first block has no input from before, the last no gradient from after.
  EXPECT_EQ(same[members[1]], members[1]);
  Option option{{OpId(3), OpId(4)}, {OpId(4)}, "x"};
  const Option moved = translated(option, {OpId(3), OpId(4)}, {OpId(6), OpId(7)});
  EXPECT_EQ(moved.forward, (std::vector<OpId>{OpId(6), OpId(7)}));
  EXPECT_EQ(moved.backward, (std::vector<OpId>{OpId(7)}));
  const Graph gpt = model("mlp_mixer");
  const TrainingGraph long_training = pair_layers(gpt);
  const auto summary = summarize(long_training, partition_with(long_training, *sequence()));
  EXPECT_LT(2 * summary.distinct, summary.groups);
}

TEST(HiremateHierarchy, EndsWithoutARootOnceTheLimitsAreReached) {
  const Graph graph = testing::training_chain(12);
  const TrainingGraph training = pair_layers(graph);
  Settings settings = small(6, 4);
  settings.lower = {solver_named("retention", settings)};
  const Partition partition = partition_with(training, *h_partition(settings));
  std::atomic<bool> stop = true;
  Limits limits;
  limits.set_stop(&stop);
  Hierarchy hierarchy(training, partition, settings, limits);
  hierarchy.solve(limits);
  EXPECT_EQ(hierarchy.counts().solved, 0);
  EXPECT_TRUE(hierarchy.root().members.empty());
}

/// What a solution of H-ILP says about memory and duration is what the simulator says: the plan that comes
/// out of the model's optimum keeps the budget, with the lower solvers' options, refreshed ones among them.
void expect_root_plans_within_budget(const std::string& lower, int rounds, int* refreshed) {
  Random random(5);
  int solved = 0;
  for (int round = 0; round < rounds; ++round) {
    const Graph graph = random_training(random, static_cast<int>(random.between(4, 16)));
    const TrainingGraph training = pair_layers(graph);
    Settings settings = small(6, 4);
    settings.lower = {solver_named(lower, settings)};
    const Partition partition = partition_with(training, *h_partition(settings));
    Limits limits;
    Hierarchy hierarchy(training, partition, settings, limits);
    hierarchy.solve(limits);
    const Level& root = hierarchy.root();
    for (const Member& member : root.members) {
      for (const Option& option : member.options) *refreshed += option.refreshed();
    }
    const Bytes budget(keep_all_peak(graph).count() * 8 / 10);
    const LevelGraph level = level_graph(root, true);
    HilpSpec spec;
    spec.peak = static_cast<double>((budget - graph.resident).count());
    const HilpModel model(level, spec);
    const lp::Solution solution = lp::solve(model.model(), lp::Settings(), limits);
    if (!solution.x) continue;
    ++solved;
    const Option option = option_of(root, level, model.runs_of(*solution.x));
    check_option(root, option);
    std::vector<OpId> steps = option.forward;
    steps.insert(steps.end(), option.backward.begin(), option.backward.end());
    const Plan plan{IndexVector<StepId, OpId>(steps)};
    ASSERT_FALSE(validate(graph, plan, OrderMode::kFree));
    ASSERT_LE(simulate(graph, plan).peak, budget) << "round " << round;
  }
  EXPECT_GT(2 * solved, rounds);
}

TEST(HIlp, SolutionsOfRandomGraphsKeepTheirBudget) {
  int refreshed = 0;
  expect_root_plans_within_budget("h_ilp", 20, &refreshed);
  EXPECT_EQ(refreshed, 0);
}

TEST(HIlp, SolutionsWithRefreshedOptionsKeepTheirBudget) {
  int refreshed = 0;
  expect_root_plans_within_budget("retention", 60, &refreshed);
  EXPECT_GT(refreshed, 60);
}

/// On one level, where nothing is lost by options, H-ILP finds the optimum that checkmate_milp proves.
TEST(HIlp, IsAsGoodAsCheckmateOnOneLevel) {
  Random random(8);
  int compared = 0;
  const int rounds = testing::draws(1, 4);
  for (int round = 0; round < rounds; ++round) {
    const Graph graph = random_training(random, 5);
    Settings settings = small(64, 4);
    settings.polish = false;
    settings.gap = 0;
    settings.all_phases = true;
    settings.lower = settings.top = {h_ilp(settings)};
    settings.partitioner = single_level();
    const std::vector<int> shares = testing::is_long() ? std::vector{92, 85, 78} : std::vector{92, 85};
    for (int percent : shares) {
      Problem problem{&graph, Bytes(keep_all_peak(graph).count() * percent / 100)};
      Limits checkmate_limits;
      const PlanResult optimum = testing::recorded_plan(problem, "checkmate_milp", {}, checkmate_limits);
      if (optimum.status != Status::kOptimal) continue;
      Limits limits;
      const PlanResult result = plan(problem, settings, limits);
      ASSERT_TRUE(result.plan);
      const Simulation cost = simulate(graph, *result.plan);
      EXPECT_LE(cost.peak, problem.budget) << "round " << round << " at " << percent << " %";
      EXPECT_EQ(cost.duration, optimum.cost.duration) << "round " << round << " at " << percent << " %";
      ++compared;
    }
  }
  EXPECT_GT(compared, rounds);
}

/// The half a percentage point, on real networks with groups, where the optimum is proved.
TEST(HIlp, IsNearTheOptimumOnNetworks) {
  const auto network = [](const char* name, std::int64_t depth, std::int64_t vocabulary) {
    TrainingOptions options;
    options.model = name;
    options.settings.depth = depth;
    options.settings.vocabulary = vocabulary;
    options.device = devices().front();
    return training_graph(options);
  };
  int proved = 0;
  const std::vector<int> shares = testing::is_long() ? std::vector{80, 70, 60} : std::vector{80};
  for (const Graph& graph : {network("fno", -1, -1), network("mlp_mixer", 1, -1)}) {
    for (int percent : shares) {
      const Problem problem{&graph, Bytes(keep_all_peak(graph).count() * percent / 100)};
      Limits checkmate_limits, limits;
      checkmate_limits.set_work(10'000'000);
      limits.set_work(4'000'000);
      const PlanResult optimum = testing::recorded_plan(problem, "checkmate_milp", {}, checkmate_limits);
      if (optimum.status != Status::kOptimal) continue;
      ++proved;
      const PlanResult result = testing::recorded_plan(problem, "hiremate", {}, limits);
      ASSERT_TRUE(has_plan(result)) << graph.name << ' ' << percent;
      const auto once = simulate(graph, keep_all_plan(graph)).duration.count();
      EXPECT_LE((result.cost.duration - optimum.cost.duration).count() * 200, once)
          << graph.name << ' ' << percent;
    }
  }
  EXPECT_GT(proved, testing::is_long() ? 3 : 0);
}

TEST(RkRotor, FindsTheSquareRootOnAChain) {
  const Graph graph = phased_chain(std::vector<std::int64_t>(36, 10), 10);
  const Problem problem{&graph, Bytes(10 * 16), OrderMode::kFree};
  Limits limits;
  limits.set_work(400'000'000);
  const PlanResult result = testing::recorded_plan(
      problem, "hiremate", {.set = {{"partitioner", "single_level"}, {"top", "rk_rotor"}, {"polish", "off"}}},
      limits);
  ASSERT_TRUE(has_plan(result));
  // Every forward op at most about once more.
  EXPECT_LE(result.cost.duration.count(), 72 + 40);
}

class Lazy final : public LevelSolver {
 public:
  std::string name() const override { return "lazy"; }
  std::vector<Option> options(const Level& level, const std::vector<LevelBudget>&, Limits&) const override {
    return {{level.forward, {}, {}}};
  }
};

TEST(Framework, NamesASolverWhoseOptionsAreNoRuns) {
  const Graph graph = testing::training_chain(4, 10, 1);
  Settings settings;
  settings.top = {std::make_shared<Lazy>()};
  const Problem problem{&graph, Bytes(keep_all_peak(graph).count() - 1)};
  Limits limits;
  try {
    plan(problem, settings, limits);
    FAIL() << "an option without its backward part went through";
  } catch (const UsageError& error) {
    EXPECT_NE(std::string(error.what()).find("level solver lazy: an option does not run"), std::string::npos)
        << error.what();
  }
}

TEST(Framework, RefusesGraphsWithoutABackwardPass) {
  const Graph graph = chain({.length = 5, .training = false});
  EXPECT_THROW(pair_layers(graph), UsageError);
  Limits limits;
  EXPECT_THROW(testing::recorded_plan({&graph, Bytes(3)}, "hiremate", {}, limits), UsageError);
}

TEST(Framework, GivesTheSamePlanAgainForAnyNumberOfThreads) {
  std::vector<const char*> names{"fno"};
  if (testing::is_long()) names.insert(names.end(), {"mlp_mixer", "unet"});
  for (const char* name : names) {
    const Graph graph = model(name);
    const Problem problem{&graph, Bytes(keep_all_peak(graph).count() * 7 / 10)};
    for (const char* preset : {"hiremate", "h_ilp"}) {
      const auto run = [&](int threads) {
        Limits limits;
        limits.set_work(testing::is_long() ? 4'000'000 : 1'000'000);
        return testing::recorded_plan(problem, "hiremate",
                                      {.seed = 1,
                                       .threads = threads,
                                       .set = {{"most_top", "6"}, {"most_lower", "4"}, {"preset", preset}}},
                                      limits);
      };
      const PlanResult one = run(1);
      ASSERT_TRUE(one.plan);
      EXPECT_EQ(one.plan, run(1).plan) << name << ' ' << preset;
      EXPECT_EQ(one.plan, run(2).plan) << name << ' ' << preset;
    }
  }
}

/// Presets on training graphs of reasonable size: a plan within the budget that runs something again.
TEST(Presets, MakePlans) {
  const auto expect_plan = [](const Graph& graph, const char* preset, int percent) {
    const Problem problem{&graph, Bytes(keep_all_peak(graph).count() * percent / 100)};
    Limits limits;
    limits.set_work(30'000'000);
    const PlanResult result =
        testing::recorded_plan(problem, "hiremate", {.set = {{"preset", preset}}}, limits);
    ASSERT_TRUE(has_plan(result)) << graph.name << ' ' << preset;
    EXPECT_GT(result.plan->steps.size(), graph.num_ops()) << graph.name << ' ' << preset;
    EXPECT_EQ(result.planner.rfind("hiremate:", 0), 0u);
  };
  TrainingOptions options;
  options.model = "resnet";
  options.settings.depth = 18;
  expect_plan(training_graph(options), "rockmate", 80);
  options.model = "gpt";
  options.settings.depth = 4;
  options.settings.vocabulary = 1000;
  expect_plan(training_graph(options), "rockmate", 70);
  options.settings.depth = 2;
  expect_plan(training_graph(options), "checkmate", 80);
  expect_plan(model("fno"), "published", 80);
}

TEST(Framework, AnInterruptionGivesTheBestSoFar) {
  const Graph graph = model("mlp_mixer");
  const Problem problem{&graph, Bytes(keep_all_peak(graph).count() / 2)};
  const std::atomic<bool> stop{true};
  Limits limits;
  limits.set_stop(&stop);
  const PlanResult result = testing::recorded_plan(problem, "hiremate", {}, limits);
  EXPECT_EQ(result.stopped_by, StoppedBy::kInterrupted);
  EXPECT_TRUE(result.plan);
}

}  // namespace
}  // namespace remat::hiremate
