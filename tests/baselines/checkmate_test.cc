#include <gtest/gtest.h>

#include <bit>
#include <cstdlib>
#include <map>

#include "helpers/graphs.h"
#include "helpers/long.h"
#include "helpers/oracle.h"
#include "helpers/reproduce.h"
#include "remat/error.h"
#include "remat/io.h"
#include "remat/planner.h"

namespace remat {
namespace {

using Mask = std::uint32_t;

/// Checkmate's model by brute force: stage after stage, every set of held values, every set of reruns in the
/// graph's order, every set of values to hold on. Values are numbered as in the graph; at most 10.
class StageOracle {
 public:
  StageOracle(const Graph& graph, Bytes budget) : graph_(graph), budget_(budget) {
    for (ValueId v : graph.values()) {
      if (!graph.is_graph_input(v) && (graph.kept[v] || !graph.readers[v].empty())) useful_ |= bit(v);
    }
  }

  std::optional<Duration> least_duration() {
    std::map<Mask, std::int64_t> reached{{0, 0}};
    const auto n = static_cast<std::int64_t>(graph_.num_ops());
    for (std::int64_t stage = 0; stage <= n; ++stage) {
      std::map<Mask, std::int64_t> next;
      for (const auto& [held, cost] : reached) run_stage(stage, held, cost, next);
      reached = std::move(next);
    }
    std::optional<Duration> best;
    for (const auto& [held, cost] : reached) {
      if ((held & kept()) == kept() && (!best || Duration(cost) < *best)) best = Duration(cost);
    }
    return best;
  }

 private:
  static Mask bit(ValueId v) { return Mask{1} << v.index(); }
  Mask mask(std::span<const ValueId> row) const {
    Mask m = 0;
    for (ValueId v : row) m |= graph_.is_graph_input(v) ? 0 : bit(v);
    return m;
  }
  Mask kept() const { return mask(graph_.graph_outputs); }
  Bytes amount(Mask values) const {
    Bytes sum;
    for (; values; values &= values - 1) sum += graph_.bytes[ValueId(std::countr_zero(values))];
    return sum;
  }

  void run_stage(std::int64_t stage, Mask held, std::int64_t cost, std::map<Mask, std::int64_t>& next) const {
    const bool tail = stage == static_cast<std::int64_t>(graph_.num_ops());
    for (Mask reruns = 0; reruns < Mask{1} << stage; ++reruns) {
      std::vector<OpId> steps;
      for (std::int64_t op = 0; op < stage; ++op) {
        if (reruns >> op & 1) steps.push_back(OpId(op));
      }
      if (!tail) steps.push_back(OpId(stage));
      Mask available = held;
      std::int64_t sum = cost;
      bool valid = true;
      for (OpId op : steps) {
        valid = valid && (graph_.recomputable[op] || op == OpId(stage)) &&
                (mask(graph_.inputs[op]) & ~available) == 0;
        available |= mask(graph_.outputs[op]);
        sum += graph_.duration[op].count();
      }
      if (!valid) continue;
      const Mask choices = available & useful_;
      for (Mask hold = choices;; hold = (hold - 1) & choices) {
        if (fits(steps, held, hold)) {
          const auto [at, is_new] = next.try_emplace(hold, sum);
          if (!is_new) at->second = std::min(at->second, sum);
        }
        if (hold == 0) break;
      }
    }
  }

  /// Backwards: a value is alive at a step if the step touches it, or if a later step reads it before making
  /// it.
  bool fits(const std::vector<OpId>& steps, Mask held, Mask hold) const {
    Mask alive = hold;
    for (std::size_t i = steps.size(); i-- > 0;) {
      const OpId op = steps[i];
      const Mask reads = mask(graph_.inputs[op]), makes = mask(graph_.outputs[op]);
      Bytes memory = graph_.resident + graph_.workspace[op] + amount(alive | reads | makes);
      for (const Over& pair : graph_.over[op]) {
        if (!(alive & bit(pair.input))) memory -= graph_.overlap(pair);
      }
      if (memory > budget_) return false;
      alive = (alive & ~makes) | reads;
    }
    return (alive & ~held) == 0;
  }

  const Graph& graph_;
  Bytes budget_;
  Mask useful_ = 0;
};

PlanResult plan(const Graph& graph, Bytes budget, std::string_view planner,
                std::map<std::string, std::string> set) {
  Limits limits;
  const Problem problem{&graph, budget, OrderMode::kFixed, Objective::kTime};
  return testing::recorded_plan(problem, planner, {.seed = 1, .threads = 1, .set = std::move(set)}, limits);
}

TEST(CheckmateMilp, EqualsBruteForceOverItsOwnModel) {
  const int graphs = testing::draws(150, 2000);
  Random random(31);
  int recomputing = 0, above_any_order = 0;
  for (int round = 0; round < graphs; ++round) {
    testing::RandomShape shape;
    shape.max_ops = 6;
    shape.max_values = 7;
    const Graph g = testing::random_graph(random, shape);
    const Bytes least = testing::oracle_min_peak(g, OrderMode::kFixed);
    const Bytes most = simulate(g, keep_all_plan(g)).peak;
    const Bytes budget(random.between(least.count(), std::max(least.count(), most.count() - 1)));
    SCOPED_TRACE(::testing::Message() << "graph " << round << " budget " << budget.count());
    const std::optional<Duration> of_model = StageOracle(g, budget).least_duration();
    const Duration of_any_plan = *testing::oracle_min_duration(g, OrderMode::kFixed, budget);
    const PlanResult own = plan(g, budget, "checkmate_milp", {{"warm_start", "none"}, {"rows", "checkmate"}});
    // The model has no generator states: with them its solutions may be over the budget.
    const bool exact = !g.has_generator_states();
    if (exact) {
      ASSERT_EQ(has_plan(own), of_model.has_value());
    }
    if (exact && of_model) {
      ASSERT_EQ(own.cost.duration, *of_model);
      ASSERT_GE(*of_model, of_any_plan);
      above_any_order += *of_model > of_any_plan;
      recomputing += *of_model > g.base_duration;
    }
    const PlanResult both = plan(g, budget, "checkmate_milp", {{"warm_start", "greedy"}});
    if (exact && of_model) {
      ASSERT_LE(both.cost.duration, *of_model);
    }
    if (both.status == Status::kOptimal) {
      ASSERT_EQ(both.cost.duration, of_any_plan);
    }
  }
  RecordProperty("recomputing", recomputing);
  RecordProperty("model_above_any_order", above_any_order);
  EXPECT_GT(recomputing, graphs / 20);
}

// a1(9) b1(9) a2(1) b2(1) m(11) w: a2 reads a1, b2 reads b1, w reads a2 and b2, and m leaves room for
// nothing. Before w everything runs again: a1 a2 b1 b2 fits into 11 bytes, the graph's own order a1 b1 a2 b2
// does not.
TEST(CheckmateMilp, ItsModelMissesPlansThatRunAgainInAnotherOrder) {
  const Graph g = testing::make_graph({},
                                      {{.inputs = {}, .output_bytes = {9}},
                                       {.inputs = {}, .output_bytes = {9}},
                                       {.inputs = {0}, .output_bytes = {1}},
                                       {.inputs = {1}, .output_bytes = {1}},
                                       {.inputs = {}, .output_bytes = {11}},
                                       {.inputs = {2, 3}, .output_bytes = {0}}},
                                      {});
  const Bytes budget(11);
  EXPECT_EQ(testing::oracle_min_duration(g, OrderMode::kFixed, budget), Duration(12));
  EXPECT_FALSE(StageOracle(g, budget).least_duration());
  const PlanResult result = plan(g, budget, "checkmate_milp", {{"warm_start", "none"}});
  EXPECT_EQ(result.status, Status::kUnknown);
  EXPECT_LE(result.duration_bound.duration, Duration(12));
}

TEST(CheckmateMilp, StopsInTimeWithAPlanAndABound) {
  const Graph g = testing::training_chain(60, 10, 3);
  const Bytes budget(220);
  for (double seconds : {0.0, 0.05, 0.5}) {
    Limits limits;
    limits.set_time(seconds);
    const Problem problem{&g, budget, OrderMode::kFixed, Objective::kTime};
    const PlanResult result = testing::recorded_plan(problem, "checkmate_milp", {}, limits);
    EXPECT_LT(result.seconds, seconds + 2);
    ASSERT_TRUE(result.plan);
    EXPECT_GT(result.duration_bound.duration, g.base_duration);
    EXPECT_NE(result.status, Status::kInfeasible);
  }
}

TEST(CheckmateMilp, RefusesWhatItCannotPlanAndOptionsItDoesNotHave) {
  const Graph g = testing::training_chain(3);
  const auto reason =
      find_planner("checkmate_milp").supports({&g, Bytes(5), OrderMode::kFree, Objective::kTime});
  ASSERT_TRUE(reason);
  EXPECT_NE(reason->find("fixed order"), std::string::npos);
  EXPECT_THROW(plan(g, Bytes(4), "checkmate_milp", {{"warm_start", "magic"}}), UsageError);
}

TEST(CheckmateLp, RoundsToPlansAndSaysWhenTheyMissTheBudget) {
  Random random(32);
  int within = 0, over = 0;
  for (int round = 0; round < 150; ++round) {
    const Graph g = testing::random_graph(random);
    const Bytes least = testing::oracle_min_peak(g, OrderMode::kFixed);
    const PlanResult result = plan(g, least, "checkmate_lp", {});
    ASSERT_TRUE(result.plan);
    ASSERT_FALSE(validate(g, *result.plan, OrderMode::kFixed));
    ASSERT_EQ(has_plan(result), result.cost.peak <= least);
    within += has_plan(result);
    over += !has_plan(result);
  }
  EXPECT_GT(within, over);
}

TEST(CheckmateLp, ShrinkingTheBudgetFindsPlansThatTheWholeOneMisses) {
  Random random(33);
  int with = 0, without = 0;
  for (int round = 0; round < 150; ++round) {
    const Graph g = testing::random_graph(random);
    const Bytes least = testing::oracle_min_peak(g, OrderMode::kFixed);
    const Bytes most = simulate(g, keep_all_plan(g)).peak;
    const Bytes budget(least.count() + (most.count() - least.count()) / 2);
    with += has_plan(plan(g, budget, "checkmate_lp", {}));
    without += has_plan(plan(g, budget, "checkmate_lp", {{"shrink", "off"}}));
  }
  EXPECT_GE(with, without);
  EXPECT_GT(with, 140);
}

/// Found by tests/differential: the budget is the floor itself, so the fastest plan has no byte to spare, and
/// sizes span fourteen digits. HiGHS called what lies below 56 empty.
TEST(CheckmateMilp, ProvesNothingByTolerancesWhereNoByteIsToSpare) {
  const Graph graph =
      parse_graph(
          R"({"format":"remat.graph","version":1,"name":"tiny","values":[{"bytes":522228936},{"bytes":20886},
      {"bytes":87535922816458411},{"bytes":1522132807},{"bytes":2079},{"bytes":366269718520624263},
      {"bytes":949899672},{"bytes":2664572495},{"bytes":13002891182496}],"ops":[
      {"name":"a","duration":5,"workspace":34009514081612,"inputs":[],"outputs":[1,2]},
      {"name":"b","duration":6,"workspace":265983668507690310,"inputs":[0,1],"outputs":[3,4,5]},
      {"name":"c","duration":2,"workspace":461168601842738790,"inputs":[0,3],"outputs":[6],
       "recompute":"never"},
      {"name":"d","duration":9,"workspace":146,"inputs":[],"outputs":[7]},
      {"name":"e","duration":9,"inputs":[],"outputs":[8]}],"inputs":[0],"outputs":[5,7,8]})",
          "tiny")
          .graph;
  std::vector<Plan> starts(2);
  for (int op : {0, 1, 2, 3, 4}) starts[0].steps.push_back(OpId(op));
  for (int op : {0, 1, 2, 0, 3, 3, 4}) starts[1].steps.push_back(OpId(op));
  Problem problem{&graph, Bytes(632253389072699281)};
  problem.starts = starts;
  for (std::uint64_t seed : {0, 265}) {
    Limits limits;
    limits.set_work(300);
    PlanOptions options;
    options.seed = seed;
    const PlanResult result = make_plan(problem, "checkmate_milp", options, limits);
    EXPECT_LE(result.duration_bound.duration, Duration(37)) << seed;
  }
}

}  // namespace
}  // namespace remat
