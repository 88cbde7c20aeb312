// Every planner on unusual graphs that random generation rarely produces.
#include <gtest/gtest.h>

#include "helpers/graphs.h"
#include "remat/planner.h"

namespace remat {
namespace {

using testing::make_graph;

struct OddGraph {
  std::string what;
  Graph graph;
};

std::vector<OddGraph> odd_graphs() {
  return {
      {"one op without outputs", make_graph({}, {{{}, {}}}, {})},
      {"no op may run twice", make_graph({4}, {{{0}, {5}, 1, 0, false}, {{1}, {3}, 1, 2, false}}, {2})},
      {"nobody reads what may run twice",
       make_graph({}, {{{}, {5}}, {{}, {3}, 1, 0, false}, {{1}, {2}}}, {2})},
      {"no value has any bytes", make_graph({0}, {{{0}, {0}}, {{1}, {0, 0}}, {{1, 2}, {}}}, {3})},
      {"no op takes any time",
       make_graph({}, {{{}, {5}, 0}, {{0}, {1}, 0}, {{1}, {9}, 0}, {{0, 2}, {1}, 0}}, {})},
      {"only graph inputs are read", make_graph({7, 8}, {{{0, 1}, {5}}, {{0}, {3}}, {{1}, {2}}}, {2, 4})},
      {"graph inputs are kept outputs", make_graph({7}, {{{0}, {5}}, {{0, 1}, {3}}}, {0, 2})},
      {"workspaces rule", make_graph({}, {{{}, {1}, 1, 100}, {{0}, {1}, 1, 50}, {{0, 1}, {1}, 1, 100}}, {})},
      {"sizes near the limit",
       make_graph({}, {{{}, {kMaxCount / 4}}, {{0}, {1}}, {{1}, {kMaxCount / 4}}, {{0, 2}, {}}}, {})},
  };
}

TEST(OddGraphs, EveryPlannerAnswersTruthfullyAtEveryBudget) {
  for (const OddGraph& odd : odd_graphs()) {
    const Bytes most = simulate(odd.graph, keep_all_plan(odd.graph)).peak;
    for (const PlannerInfo& planner : planners()) {
      for (OrderMode order : {OrderMode::kFixed, OrderMode::kFree}) {
        for (Bytes budget : {most, Bytes(most.count() / 2), Bytes(1)}) {
          const Problem problem{&odd.graph, budget, order};
          if (planner.supports(problem)) continue;
          SCOPED_TRACE(odd.what + ", " + std::string(planner.name) + ", " + std::string(to_string(order)) +
                       " order, " + std::to_string(budget.count()));
          Limits limits;
          limits.set_work(20'000);
          const PlanResult result = make_plan(problem, planner.name, {}, limits);
          if (has_plan(result)) {
            ASSERT_FALSE(validate(odd.graph, *result.plan, order, budget));
          } else if (budget == most) {
            EXPECT_NE(result.status, Status::kInfeasible) << "keep-all fits";
          }
        }
      }
    }
  }
}

}  // namespace
}  // namespace remat
