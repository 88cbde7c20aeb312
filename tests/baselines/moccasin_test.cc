// moccasin: its two forms against brute force, its switches, limits and numbers.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <ctime>
#include <filesystem>
#include <map>
#include <queue>
#include <thread>

#include "baselines/moccasin/neighbourhood.h"
#include "cpsat/library.h"
#include "exact/interval_model.h"
#include "helpers/graphs.h"
#include "helpers/long.h"
#include "helpers/oracle.h"
#include "helpers/places.h"
#include "helpers/reproduce.h"
#include "remat/io.h"

namespace remat::moccasin {
namespace {

/// The model gives outputs places of their own and knows no generator states: without either it is exact.
const testing::RandomShape kApart{.over = 0, .states = 0};

class Moccasin : public ::testing::Test {
 protected:
  void SetUp() override {
    if (const auto reason = cpsat::unavailable()) GTEST_SKIP() << *reason;
  }
};

PlanResult run(const Problem& problem, std::map<std::string, std::string> set, Limits& limits) {
  return testing::recorded_plan(problem, "moccasin", {.seed = 3, .threads = 1, .set = std::move(set)},
                                limits);
}
PlanResult run(const Problem& problem, std::map<std::string, std::string> set = {}) {
  Limits limits;
  return run(problem, std::move(set), limits);
}

std::int64_t counter(const PlanResult& result, std::string_view name) {
  for (const auto& [key, value] : result.counters) {
    if (key == name) return value;
  }
  return -1;
}

Bytes middle_budget(const Graph& graph, OrderMode order) {
  const Bytes least = testing::oracle_min_peak(graph, order);
  const Bytes most = simulate(graph, keep_all_plan(graph)).peak;
  return Bytes(least.count() + (most.count() - least.count()) / 3);
}

/// Least duration over the plans of the stage form: before the first run of op t, and after all of them,
/// ops that ran before may run again in ascending order. Dijkstra over (memory, stage, last rerun).
std::optional<Duration> stage_optimum(const Graph& graph, Bytes budget) {
  struct State {
    std::int64_t duration;
    std::uint32_t memory;
    std::int32_t stage, last;
    bool operator>(const State& other) const { return duration > other.duration; }
  };
  const auto n = static_cast<std::int32_t>(graph.num_ops());
  const auto mask = [&](auto row) {
    std::uint32_t bits = 0;
    for (ValueId v : row) {
      if (!graph.is_graph_input(v)) bits |= 1u << v.index();
    }
    return bits;
  };
  const auto amount = [&](std::uint32_t memory) {
    Bytes sum = graph.resident;
    for (ValueId v : graph.values()) {
      if (memory >> v.index() & 1) sum += graph.bytes[v];
    }
    return sum;
  };
  const std::uint32_t kept = mask(std::span(graph.graph_outputs));
  std::priority_queue<State, std::vector<State>, std::greater<>> queue;
  std::map<std::tuple<std::uint32_t, std::int32_t, std::int32_t>, std::int64_t> best;
  const auto push = [&](State s) {
    const auto [at, is_new] = best.try_emplace({s.memory, s.stage, s.last}, s.duration);
    if (!is_new && at->second <= s.duration) return;
    at->second = s.duration;
    queue.push(s);
  };
  push({0, 0, 0, -1});
  while (!queue.empty()) {
    const State s = queue.top();
    queue.pop();
    if (best[{s.memory, s.stage, s.last}] < s.duration) continue;
    if (s.stage == n && (s.memory & kept) == kept) return Duration(s.duration);
    for (ValueId v : graph.values()) {
      if (s.memory >> v.index() & 1) push({s.duration, s.memory & ~(1u << v.index()), s.stage, s.last});
    }
    for (std::int32_t i = s.last + 1; i <= std::min(s.stage, n - 1); ++i) {
      const OpId op(i);
      const std::uint32_t needs = mask(graph.inputs[op]), after = s.memory | mask(graph.outputs[op]);
      const bool first = i == s.stage;
      if ((s.memory & needs) != needs || (!first && !graph.recomputable[op])) continue;
      if (amount(after) + graph.workspace[op] > budget) continue;
      push({s.duration + graph.duration[op].count(), after, s.stage + first, first ? -1 : i});
    }
  }
  return std::nullopt;
}

void expect_optimum(const PlanResult& result, std::optional<Duration> truth) {
  if (!truth) {
    EXPECT_FALSE(has_plan(result));
    return;
  }
  ASSERT_TRUE(has_plan(result));
  EXPECT_EQ(result.cost.duration, *truth);
  const bool keeps_all = result.cost.duration == result.duration_bound.duration;
  EXPECT_TRUE(keeps_all || counter(result, "model_optimal") == 1);
}

TEST_F(Moccasin, StageFormIsTheOptimumOfItsModelOnTinyGraphs) {
  Random random(21);
  for (int round = 0; round < testing::draws(120, 2000); ++round) {
    const Graph graph = testing::random_graph(random, kApart);
    const Problem problem{&graph, middle_budget(graph, OrderMode::kFixed)};
    SCOPED_TRACE(::testing::Message() << "round " << round << ", budget " << problem.budget.count());
    const auto truth = stage_optimum(graph, problem.budget);
    expect_optimum(run(problem, {{"c", "7"}}), truth);
    expect_optimum(run(problem, {{"c", "7"}, {"neighbourhoods", "off"}}), truth);
  }
}

TEST_F(Moccasin, EventFormIsTheOptimumOfAllPlansOnTinyGraphsInBothOrders) {
  Random random(22);
  for (int round = 0; round < testing::draws(40, 2000); ++round) {
    const Graph graph = testing::random_graph(random, {.max_ops = 6, .over = 0, .states = 0});
    for (OrderMode order : {OrderMode::kFixed, OrderMode::kFree}) {
      const Problem problem{&graph, middle_budget(graph, order), order};
      SCOPED_TRACE(::testing::Message() << "round " << round << " " << to_string(order));
      expect_optimum(run(problem, {{"c", "3"}, {"form", "events"}}),
                     testing::oracle_min_duration(graph, order, problem.budget));
    }
  }
}

TEST_F(Moccasin, EverySwitchLeavesTheOptimumWhereItIs) {
  Random random(23);
  for (int round = 0; round < 8; ++round) {
    const Graph graph = testing::random_graph(random, {.min_ops = 5, .over = 0, .states = 0});
    const Problem problem{&graph, middle_budget(graph, OrderMode::kFixed)};
    const auto truth = stage_optimum(graph, problem.budget);
    for (const char* presolve : {"on", "off"}) {
      for (const char* linearization : {"on", "off"}) {
        for (const char* neighbourhoods : {"on", "off"}) {
          for (const char* warm : {"none", "greedy"}) {
            expect_optimum(run(problem, {{"c", "7"},
                                         {"presolve", presolve},
                                         {"linearization", linearization},
                                         {"neighbourhoods", neighbourhoods},
                                         {"warm_start", warm}}),
                           truth);
          }
        }
      }
    }
  }
}

TEST_F(Moccasin, ClaimsOptimalOnlyWhereNoPlanOutsideItsModelIsFaster) {
  Random random(24);
  int claimed = 0, open = 0;
  for (int round = 0; round < testing::draws(60, 2000); ++round) {
    const Graph graph = testing::random_graph(random, {.min_ops = 5, .over = 0, .states = 0});
    const Problem problem{&graph, middle_budget(graph, OrderMode::kFixed)};
    const auto truth = testing::oracle_min_duration(graph, OrderMode::kFixed, problem.budget);
    const PlanResult result = run(problem, {{"c", "1"}});
    const PlanResult twice = run(problem, {{"c", "2"}});
    for (const PlanResult* one : {&result, &twice}) {
      ASSERT_NE(one->status, Status::kInfeasible);  // the budget is above the least peak
      ASSERT_LE(one->duration_bound.duration, truth);
      if (one->status == Status::kOptimal) {
        ASSERT_EQ(one->cost.duration, truth);
      }
    }
    claimed += twice.status == Status::kOptimal;
    open += twice.status != Status::kOptimal;
  }
  EXPECT_GT(claimed, 0);
  EXPECT_GT(open, 0);
}

TEST_F(Moccasin, MinimizesThePeakWhereThatIsAsked) {
  Random random(25);
  for (int round = 0; round < 40; ++round) {
    const Graph graph = testing::random_graph(random, kApart);
    Problem problem{&graph};
    problem.objective = Objective::kPeak;
    const PlanResult result = run(problem, {{"c", "7"}});
    Bytes least = testing::oracle_min_peak(graph, OrderMode::kFixed);
    while (!stage_optimum(graph, least)) least += Bytes(1);
    EXPECT_EQ(result.cost.peak, least);
    EXPECT_EQ(result.cost.duration, stage_optimum(graph, least));
  }
}

TEST_F(Moccasin, AdmitsMoreRunsOfAnOpWhereAKnownPlanHasThem) {
  // a (3 bytes) is read at four places, between which one op needs all the room.
  std::vector<testing::TestOp> ops{{.inputs = {}, .output_bytes = {3}}};
  std::vector<OpId> steps{OpId(0)};
  for (std::int64_t i = 0; i < 3; ++i) {
    ops.push_back({.inputs = {}, .output_bytes = {1}, .workspace = 9});
    ops.push_back({.inputs = {0, 1 + 2 * i}, .output_bytes = {0}});
    steps.insert(steps.end(), {OpId(1 + 2 * i), OpId(0), OpId(2 + 2 * i)});
  }
  const Graph graph = testing::make_graph({}, ops, {});
  const Plan known{IndexVector<StepId, OpId>(std::vector(steps.begin() + 0, steps.end()))};
  Problem problem{&graph, Bytes(10)};
  EXPECT_FALSE(has_plan(run(problem, {{"c", "2"}})));
  problem.starts = std::span(&known, 1);
  const PlanResult result = run(problem, {{"c", "2"}});
  ASSERT_TRUE(has_plan(result));
  EXPECT_EQ(result.cost.duration, simulate(graph, known).duration);
}

TEST_F(Moccasin, RoundsHugeSizesToTheSafeSide) {
  // Sizes without a common divisor whose sum times the time axis is far beyond 2^60.
  constexpr std::int64_t kBig = std::int64_t{1} << 56;
  std::vector<testing::TestOp> ops;
  for (std::int64_t i = 0; i < 6; ++i) {
    ops.push_back({.inputs = i == 0 ? std::vector<std::int64_t>{} : std::vector<std::int64_t>{i - 1},
                   .output_bytes = {kBig + i},
                   .duration = (std::int64_t{1} << 57) + i});
  }
  for (std::int64_t i = 5; i > 0; --i) {
    ops.push_back({.inputs = {i - 1, std::ssize(ops) - 1}, .output_bytes = {kBig - i}, .duration = 3});
  }
  const Graph graph = testing::make_graph({}, ops, {});
  const Bytes most = simulate(graph, keep_all_plan(graph)).peak;
  const Problem problem{&graph, Bytes(most.count() - kBig / 2)};
  const PlanResult result = run(problem);
  ASSERT_TRUE(has_plan(result));
  EXPECT_LE(result.cost.peak, problem.budget);
  EXPECT_GT(result.cost.duration, graph.base_duration);
}

Graph load_shared(const std::string& name) { return load_graph(testing::shared_graph(name)).graph; }
bool has_shared() { return std::filesystem::exists(testing::shared_dir() / "instances"); }

TEST_F(Moccasin, ReachesThePublishedOverheadsOnTheGraphOfAHundredOps) {
  if (!has_shared()) GTEST_SKIP() << "no shared instances at " << testing::shared_dir();
  const Graph graph = load_shared("random_layered_n100");
  for (const auto& [percent, overhead_percent] : {std::pair(90, 0.8), std::pair(80, 2.3)}) {
    Limits limits;
    limits.set_time(60);
    const PlanResult result = run({&graph, Bytes(46319 * percent / 100)}, {}, limits);
    ASSERT_TRUE(has_plan(result));
    EXPECT_NEAR(100 * overhead(graph, result.cost.duration), overhead_percent, 0.05);
    // The progress curve: never rising, from some plan within the budget to this one.
    std::vector<std::int64_t> durations;
    for (const auto& [name, value] : result.counters) {
      if (name.starts_with("phase2_at_")) durations.push_back(value);
    }
    ASSERT_FALSE(durations.empty());
    EXPECT_TRUE(std::is_sorted(durations.rbegin(), durations.rend()));
    EXPECT_EQ(durations.back(), result.cost.duration.count());
  }
}

TEST_F(Moccasin, StopsInTimeOnAGraphThatIsTooLargeToSolve) {
  if (!has_shared()) GTEST_SKIP() << "no shared instances at " << testing::shared_dir();
  const Graph graph = load_shared("random_layered_n500");
  const Problem problem{&graph, Bytes(284439 * 8 / 10)};
  // Processor time of this process, which does not depend on other processes.
  const auto processor_seconds = [begin = std::clock()] {
    return static_cast<double>(std::clock() - begin) / CLOCKS_PER_SEC;
  };
  for (const char* neighbourhoods : {"on", "off"}) {
    const double begin = processor_seconds();
    Limits limits;
    limits.set_time(2);
    const PlanResult result = run(problem, {{"neighbourhoods", neighbourhoods}}, limits);
    EXPECT_LT(processor_seconds() - begin, 2 + 0.2);
    EXPECT_EQ(result.stopped_by, StoppedBy::kTime);
    EXPECT_NE(result.status, Status::kInfeasible);
  }
  const double begin = processor_seconds();
  std::atomic<bool> stop{false};
  Limits limits;
  limits.set_stop(&stop);
  std::thread other([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(700));
    stop = true;
  });
  const PlanResult result = run(problem, {{"neighbourhoods", "off"}}, limits);
  other.join();
  EXPECT_LT(processor_seconds() - begin, 0.7 + 0.2);
  EXPECT_EQ(result.stopped_by, StoppedBy::kInterrupted);
}

// Parts that need no solver.

TEST(MoccasinShape, KnowsWhatAPlanOutsideTheModelCosts) {
  const Graph chain = testing::training_chain(4, 1, 5);  // base 40
  const Shape once = make_shape(chain, OrderMode::kFixed, Form::kStage, 1);
  EXPECT_EQ(least_duration_outside(chain, once), Duration(45));
  const Shape many = make_shape(chain, OrderMode::kFixed, Form::kStage, 64);
  EXPECT_EQ(least_duration_outside(chain, many), Duration(50)) << "two reruns out of order in one stage";
  const Shape events = make_shape(chain, OrderMode::kFixed, Form::kEvents, 3);
  EXPECT_EQ(least_duration_outside(chain, events), Duration(55)) << "four runs of one op";
  const Graph lone =
      testing::make_graph({}, {{.inputs = {}, .output_bytes = {4}, .recomputable = false}}, {0});
  EXPECT_FALSE(least_duration_outside(lone, make_shape(lone, OrderMode::kFree, Form::kEvents, 1)));
}

TEST(MoccasinShape, LeavesOutEventsAtWhichNoRunIsOfUse) {
  const Graph chain = testing::training_chain(3);  // f0 f1 f2 b2 b1 b0; b2 reads f2 and f1, b1 reads f0
  const Shape shape = make_shape(chain, OrderMode::kFixed, Form::kStage, 2);
  EXPECT_EQ(shape.runs.raw(), (std::vector{2, 2, 1, 1, 1, 1}));
  const Timeline time(chain, shape);
  EXPECT_EQ(time.events(OpId(0)).size(), 4u);  // first run, stages 2, 3 and 4
  EXPECT_EQ(time.events(OpId(1)).size(), 2u);  // first run, stage 3
  EXPECT_LE(time.end(), 21);
}

TEST_F(Moccasin, StageFormProvesNothingInFreeOrder) {
  // a (4 bytes) is read by c alone, and b needs 4 of workspace: within 5 bytes a runs twice or after b.
  const Graph graph = testing::make_graph({},
                                          {{.inputs = {}, .output_bytes = {4}, .duration = 3},
                                           {.inputs = {}, .output_bytes = {1}, .duration = 1, .workspace = 4},
                                           {.inputs = {0}, .output_bytes = {}, .duration = 1}},
                                          {1});
  const Problem problem{&graph, Bytes(5), OrderMode::kFree};
  const PlanResult result = run(problem, {{"form", "stage"}});
  EXPECT_EQ(testing::oracle_min_duration(graph, OrderMode::kFree, Bytes(5)), Duration(5));
  EXPECT_LE(result.duration_bound.duration, Duration(5)) << result.duration_bound.argument;
  if (result.status == Status::kOptimal) {
    EXPECT_EQ(result.cost.duration, Duration(5));
  }
}

TEST(MoccasinShape, BringsPlansIntoStageOrder) {
  Random random(26);
  for (int round = 0; round < 200; ++round) {
    const Graph graph = testing::random_graph(random, kApart);
    Shape shape = make_shape(graph, OrderMode::kFixed, Form::kStage, 2);
    const Plan plan = shaped(graph, shape, testing::random_plan(graph, random, 6));
    ASSERT_FALSE(validate(graph, plan, OrderMode::kFixed));
    admit(graph, plan, shape);
    ASSERT_TRUE(Timeline(graph, shape).starts(graph, shape, plan)) << "in the shape after `admit`";
    ASSERT_EQ(shaped(graph, shape, plan), plan);
  }
}

TEST(MoccasinNeighbourhoods, PinAllOpsButTheFreeOnes) {
  const Graph chain = testing::training_chain(6);
  const Shape shape = make_shape(chain, OrderMode::kFixed, Form::kStage, 2);
  const Neighbourhoods near(chain, shape, keep_all_plan(chain));
  EXPECT_FALSE(near.has_reruns());
  Random random(1);
  const std::vector<OpId> ops = near.around(6, 3, random);
  ASSERT_FALSE(ops.empty());
  ASSERT_LE(ops.size(), 3u);
  const Shape freed = near.freed(ops);
  for (OpId op : chain.ops()) {
    const bool is_free = std::find(ops.begin(), ops.end(), op) != ops.end();
    EXPECT_EQ(freed.pinned[op].empty(), is_free);
    EXPECT_EQ(freed.runs[op], is_free ? shape.runs[op] : 1);
  }
  EXPECT_EQ(*std::max_element(near.levels().begin(), near.levels().end()),
            simulate(chain, keep_all_plan(chain)).peak);
}

}  // namespace
}  // namespace remat::moccasin
