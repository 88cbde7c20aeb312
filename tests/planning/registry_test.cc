#include <gtest/gtest.h>

#include <cstdlib>
#include <stdexcept>

#include "helpers/errors.h"
#include "helpers/graphs.h"
#include "remat/keep_all.h"
#include "remat/planner.h"

namespace remat {
namespace {

PlannerInfo planner_of(const std::string& name, std::vector<int> steps) {
  return {.name = name,
          .description = "fixed steps",
          .guarantee = "none",
          .source = "a test",
          .supports = [](const Problem& problem) -> std::optional<std::string> {
            if (problem.order == OrderMode::kFree) return "it plans in fixed order only";
            return std::nullopt;
          },
          .run =
              [steps = std::move(steps)](const Problem&, const PlanOptions&, Limits&) {
                PlanResult result;
                result.plan.emplace();
                for (int op : steps) result.plan->steps.push_back(OpId(op));
                return result;
              }};
}

void register_and_replace() {
  const Graph graph = testing::training_chain(2);
  const Problem problem{.graph = &graph, .budget = keep_all_peak(graph)};
  const std::size_t before = planners().size();
  register_planner(planner_of("registry_test", {0, 1, 2, 3}));
  EXPECT_EQ(planners().size(), before + 1);
  EXPECT_EQ(planners().back().name, "registry_test");
  Limits limits;
  const PlanResult result = make_plan(problem, "registry_test", {}, limits);
  EXPECT_EQ(result.status, Status::kOptimal);
  EXPECT_EQ(result.planner, "registry_test");

  register_planner(planner_of("registry_test", {1, 0, 2, 3}));
  EXPECT_EQ(planners().size(), before + 1);
  const auto fault =
      testing::error_of<std::logic_error>([&] { make_plan(problem, "registry_test", {}, limits); });
  EXPECT_TRUE(fault.starts_with("planner registry_test returned a plan that breaks rule input_ready: step 0"))
      << fault;
  EXPECT_EQ(testing::usage_error([&] {
              make_plan({.graph = &graph, .budget = problem.budget, .order = OrderMode::kFree},
                        "registry_test", {}, limits);
            }),
            "planner registry_test does not support this problem: it plans in fixed order only");

  PlannerInfo with_options = planner_of("registry_test", {0, 1, 2, 3});
  OptionInfo& option = with_options.options.emplace_back();
  option.name = "k";
  option.type = OptionType::kInteger;
  option.range = IntegerRange{1, 3};
  const PlanOptions k{.set = {{"k", "4"}}}, other{.set = {{"other", "1"}}};
  register_planner(with_options);
  EXPECT_EQ(testing::usage_error([&] { make_plan(problem, "registry_test", k, limits); }),
            "planner registry_test: option k=4 is not an integer in [1, 3]");
  EXPECT_EQ(testing::usage_error([&] { make_plan(problem, "registry_test", other, limits); }),
            "planner registry_test has no option 'other'; it has: k");
  with_options.takes_any_option = true;
  register_planner(with_options);
  EXPECT_EQ(make_plan(problem, "registry_test", other, limits).status, Status::kOptimal);
}

// In a separate process, because tests of all planners may follow in this one.
TEST(Registry, APlannerThatIsRegisteredIsOneOfAllAndReplacedByItsName) {
  const auto in_child = [] {
    register_and_replace();
    std::_Exit(::testing::Test::HasFailure() ? 1 : 0);
  };
  EXPECT_EXIT(in_child(), ::testing::ExitedWithCode(0), "");
}

TEST(Registry, NamesThatAPlannerCannotHaveAreRefused) {
  const auto message = [](const std::string& name) {
    return testing::usage_error([&] { register_planner(planner_of(name, {0})); });
  };
  EXPECT_EQ(message("auto"), "planner 'auto' is one of Remat's: give yours another name");
  EXPECT_EQ(message("a b"), "a planner's name has letters, digits, '_', '-' and '.' only: 'a b'");
  EXPECT_EQ(message(""), "a planner's name has letters, digits, '_', '-' and '.' only: ''");
}

}  // namespace
}  // namespace remat
