// Regressions (tests/data/cases): valid graphs that once caused a wrong status, an overflow or an exception.
#include <gtest/gtest.h>

#include "differential/exact.h"
#include "helpers/places.h"
#include "remat/io.h"
#include "remat/keep_all.h"
#include "remat/planner.h"

namespace remat {
namespace {

Graph load_case(const std::string& name) {
  return load_graph((testing::data_dir() / "cases" / (name + ".json")).string()).graph;
}

exact::Graph exact_copy(const Graph& graph) {
  exact::Graph copy;
  const auto indices = [](const auto& row) {
    std::vector<int> out;
    for (auto id : row) out.push_back(id.index());
    return out;
  };
  for (Bytes bytes : graph.bytes) copy.bytes.push_back(bytes.count());
  copy.inputs = indices(graph.graph_inputs);
  copy.kept = indices(graph.graph_outputs);
  for (OpId op : graph.ops()) {
    copy.ops.push_back({indices(graph.inputs[op]), indices(graph.outputs[op]), indices(graph.after[op]),
                        graph.duration[op].count(), graph.workspace[op].count(), graph.recomputable[op]});
    for (const Over& pair : graph.over[op]) {
      copy.ops.back().over.emplace_back(pair.input.index(), pair.output.index());
    }
  }
  return copy;
}

/// The exact results for a graph in one order.
class Truth {
 public:
  Truth(const Graph& graph, OrderMode order)
      : copy_(exact_copy(graph)),
        order_(order),
        costs_(exact::trade_off(copy_, order == OrderMode::kFixed)) {}

  exact::Sum least_peak() const { return costs_.front().peak; }
  std::optional<exact::Sum> optimum(Bytes budget) const {
    std::optional<exact::Sum> best;
    for (const exact::Cost& cost : costs_) {
      if (cost.peak <= budget.count()) best = cost.duration;
    }
    return best;
  }

  void expect_true(const PlanResult& result, Bytes budget) const {
    const auto best = optimum(budget);
    EXPECT_LE(Wide{result.peak_bound.peak.count()}, least_peak());
    EXPECT_TRUE(result.status != Status::kInfeasible || !best) << "a plan fits";
    if (result.plan) {
      const std::vector<int> steps = steps_of(*result.plan);
      EXPECT_EQ(exact::broken_rule(copy_, steps, order_ == OrderMode::kFixed), std::nullopt);
      const exact::Cost cost = exact::cost_of(copy_, steps);
      EXPECT_EQ(to_string(cost.peak), std::to_string(result.cost.peak.count()));
      EXPECT_EQ(to_string(cost.duration), std::to_string(result.cost.duration.count()));
      EXPECT_EQ(has_plan(result), cost.peak <= budget.count());
    }
    if (!best) return;
    EXPECT_LE(to_string(Wide{result.duration_bound.duration.count()} - *best).front(), '0')
        << result.duration_bound.argument << " " << result.duration_bound.duration.count() << " is above "
        << to_string(*best);
    if (result.status == Status::kOptimal) {
      EXPECT_EQ(std::to_string(result.cost.duration.count()), to_string(*best));
    }
  }

 private:
  static std::vector<int> steps_of(const Plan& plan) {
    std::vector<int> steps;
    for (OpId op : plan.steps) steps.push_back(op.index());
    return steps;
  }

  exact::Graph copy_;
  OrderMode order_;
  std::vector<exact::Cost> costs_;
};

struct Call {
  const char* name;
  const char* file;
  const char* planner;
  OrderMode order = OrderMode::kFixed;
  std::int64_t budget = 0;  ///< 0: several from the least peak up
};

class HardCases : public ::testing::TestWithParam<Call> {};

TEST_P(HardCases, AreAnsweredTruthfully) {
  const Call& call = GetParam();
  const Graph graph = load_case(call.file);
  const Truth truth(graph, call.order);
  std::vector<Bytes> budgets{Bytes(call.budget)};
  if (call.budget == 0) {
    const auto least = static_cast<std::int64_t>(truth.least_peak());
    const std::int64_t span = keep_all_peak(graph).count() - least;
    budgets = {Bytes(least), Bytes(least + span / 4), Bytes(least + span / 2), Bytes(least + span - 1)};
  }
  for (Bytes budget : budgets) {
    const Problem problem{&graph, budget, call.order};
    if (find_planner(call.planner).supports(problem)) continue;
    for (std::int64_t work : {300, 3'000, 300'000}) {
      SCOPED_TRACE(::testing::Message() << "budget " << budget.count() << " work " << work);
      Limits limits;
      limits.set_work(work);
      truth.expect_true(make_plan(problem, call.planner, {}, limits), budget);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(
    Shared, HardCases,
    ::testing::Values(Call{"AutoOnALongOp", "long_op_auto", "auto", OrderMode::kFixed, 66},
                      Call{"AutoOnALongOpAtSmallBudgets", "long_op_auto", "auto"},
                      Call{"SearchOnALongOp", "long_op_auto", "search"},
                      Call{"CheckmateLpOnALongOp", "long_op_checkmate_lp", "checkmate_lp"},
                      Call{"CheckmateMilpOnALongOp", "long_op_checkmate_milp", "checkmate_milp"},
                      Call{"DtrOnALongOp", "long_op_dtr", "dtr"},
                      Call{"GreedyOnALongOp", "long_op_dtr", "greedy"},
                      Call{"EvictOnALongOp", "long_op_evict", "evict"},
                      Call{"HiremateOnALongOp", "long_op_hiremate", "hiremate"},
                      Call{"CheckmateMilpOnTwoScales", "two_scales", "checkmate_milp", OrderMode::kFixed, 47},
                      Call{"CheckmateMilpOnLongOps", "long_ops_109", "checkmate_milp", OrderMode::kFixed, 69},
                      Call{"CheckmateMilpOnOtherLongOps", "long_ops_1339", "checkmate_milp",
                           OrderMode::kFixed, 87},
                      Call{"CheckmateMilpOnHugeSizes", "huge_sizes", "checkmate_milp"},
                      Call{"HiremateOnSizesNearTheLimit", "sizes_near_the_limit", "hiremate",
                           OrderMode::kFixed, 466638430189610368},
                      Call{"HiremateInFreeOrderOnSizesNearTheLimit", "sizes_near_the_limit", "hiremate",
                           OrderMode::kFree, 466638430189610368}),
    [](const ::testing::TestParamInfo<Call>& call) { return std::string(call.param.name); });

TEST(HardCases, EveryPlannerAnswersTruthfullyOnEveryOne) {
  for (const char* file : {"long_op_auto", "long_op_checkmate_lp", "long_op_checkmate_milp", "long_op_dtr",
                           "long_op_evict", "long_op_hiremate", "huge_sizes", "two_scales",
                           "sizes_near_the_limit", "long_ops_109", "long_ops_1339"}) {
    const Graph graph = load_case(file);
    for (OrderMode order : {OrderMode::kFixed, OrderMode::kFree}) {
      const Truth truth(graph, order);
      const auto least = static_cast<std::int64_t>(truth.least_peak());
      for (const PlannerInfo& planner : planners()) {
        for (Bytes budget :
             {Bytes(least - 1), Bytes(least), Bytes((least + keep_all_peak(graph).count()) / 2)}) {
          for (Objective objective : {Objective::kTime, Objective::kPeak}) {
            const Problem problem{&graph, budget, order, objective};
            if (planner.supports(problem)) continue;
            SCOPED_TRACE(::testing::Message() << file << " " << planner.name << " " << to_string(order) << " "
                                              << to_string(objective) << " " << budget.count());
            Limits limits;
            limits.set_work(3'000);
            PlanResult result = make_plan(problem, planner.name, {}, limits);
            // The least peak implies nothing about the least duration at the budget.
            if (objective == Objective::kPeak && result.status == Status::kOptimal)
              result.status = Status::kFeasible;
            truth.expect_true(result, budget);
          }
        }
      }
    }
  }
}

TEST(HardCases, APlanWhoseDurationDoesNotFitIsRefusedWithBothNumbers) {
  const Graph graph = load_case("one_long_op");
  const PlanRecord record =
      load_plan((testing::data_dir() / "cases" / "one_long_op_five_times.plan").string());
  const auto violation = validate(graph, record.steps, OrderMode::kFixed);
  ASSERT_TRUE(violation);
  EXPECT_EQ(violation->rule, Rule::kDuration);
  EXPECT_EQ(violation->message,
            "rule duration: the steps take 11529215046068469760 together, which is not below "
            "9223372036854775808");
  EXPECT_EQ(check_record(graph, record), std::vector<std::string>{violation->message});
  const Plan plan{IndexVector<StepId, OpId>(std::vector<OpId>(5, OpId(0)))};
  EXPECT_EQ(simulate(graph, plan).duration, kTooLong);
  const Plan three{IndexVector<StepId, OpId>(std::vector<OpId>(3, OpId(0)))};
  EXPECT_FALSE(validate(graph, three, OrderMode::kFixed));
  EXPECT_EQ(simulate(graph, three).duration, Duration(3 * (std::int64_t{1} << 61)));
}

TEST(HardCases, APlanKnownBeforeThatIsTooLongIsLeftOut) {
  const Graph graph = load_case("one_long_op");
  const std::vector<Plan> starts{{IndexVector<StepId, OpId>(std::vector<OpId>(5, OpId(0)))}};
  for (const PlannerInfo& planner : planners()) {
    Problem problem{&graph};
    problem.starts = starts;
    if (planner.supports(problem)) continue;
    SCOPED_TRACE(planner.name);
    Limits limits;
    limits.set_work(3'000);
    const PlanResult result = make_plan(problem, planner.name, {}, limits);
    EXPECT_EQ(result.status, Status::kOptimal);
    EXPECT_EQ(result.cost.duration, graph.base_duration);
  }
}

}  // namespace
}  // namespace remat
