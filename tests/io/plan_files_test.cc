#include <gtest/gtest.h>

#include "helpers/errors.h"
#include "helpers/graphs.h"
#include "remat/error.h"
#include "remat/io.h"

namespace remat {
namespace {

using testing::training_chain;

PlanRecord record_of(const Graph& graph, const Plan& plan, std::optional<Bytes> budget = std::nullopt) {
  Problem problem{.graph = &graph, .budget = budget.value_or(kNoBudget), .order = OrderMode::kFixed};
  if (!budget) problem.objective = Objective::kPeak;
  PlanResult result;
  result.status = Status::kFeasible;
  result.planner = "keep_all";
  result.plan = plan;
  result.cost = simulate(graph, plan);
  result.peak_bound = floor_bound(graph);
  result.duration_bound = {"base", graph.base_duration};
  return make_record(problem, result, 7);
}

TEST(PlanFiles, KeepEverythingARecordSays) {
  const Graph graph = training_chain(3);
  const PlanRecord written = record_of(graph, keep_all_plan(graph), Bytes(9));
  const PlanRecord read = parse_plan(format_plan(written), "p");
  EXPECT_EQ(read.graph_name, "test");
  EXPECT_EQ(read.graph_hash, graph_hash(graph));
  EXPECT_EQ(read.budget, Bytes(9));
  EXPECT_EQ(read.order, OrderMode::kFixed);
  EXPECT_EQ(read.planner, "keep_all");
  EXPECT_EQ(read.seed, 7u);
  EXPECT_EQ(read.status, "feasible");
  EXPECT_EQ(read.peak, written.peak);
  EXPECT_EQ(read.duration, written.duration);
  EXPECT_EQ(read.overhead, written.overhead);
  EXPECT_EQ(read.peak_bound, written.peak_bound);
  EXPECT_EQ(read.duration_bound, written.duration_bound);
  EXPECT_EQ(read.steps, (std::vector<std::int64_t>{0, 1, 2, 3, 4, 5}));
  EXPECT_TRUE(read.warnings.empty());
}

TEST(PlanFiles, KeepWhatWasAsked) {
  const Graph graph = training_chain(3);
  PlanRecord written = record_of(graph, keep_all_plan(graph), Bytes(9));
  EXPECT_FALSE(parse_plan(format_plan(written), "p").request);
  const Problem problem{.graph = &graph, .objective = Objective::kPeak};
  written.request = make_request(problem, "auto", {.threads = 3, .set = {{"a \"b\"", "1"}, {"k", "on"}}});
  for (const bool has_limits : {false, true}) {
    if (has_limits) {
      written.request->time_limit = 0.25;
      written.request->work_limit = 1000;
      written.request->gap_limit = 1e-4;
    }
    const PlanRecord read = parse_plan(format_plan(written), "p");
    EXPECT_EQ(read.request, written.request);
    EXPECT_TRUE(read.warnings.empty());
    EXPECT_TRUE(check_record(graph, read).empty());
  }
  EXPECT_FALSE(written.request->version.empty());
}

TEST(PlanFiles, WithARequestThatIsNoneAreRefused) {
  const auto message = [](const std::string& request) {
    return testing::error_of<InputError>([&] {
      parse_plan(R"({"format":"remat.plan","version":1,"steps":[0],"request":)" + request + "}", "p");
    });
  };
  EXPECT_EQ(message("7"), "p:1:59: 'request': found 7 instead of an object");
  EXPECT_EQ(message(R"({"options":{"k":7}})"),
            "p:1:75: 'request': 'options': 'k': found 7 instead of a text");
  EXPECT_EQ(message(R"({"objective":"speed"})"),
            "p:1:77: 'request': 'objective': found 'speed' instead of one of 'time', 'peak'");
}

TEST(PlanFiles, KeepCopiesAndTheHostTheyAreTimedOn) {
  PlanRecord written;
  written.steps = {0, 1, 2};
  written.copies = {{ValueId(4), Way::kOut, StepId(0), StepId(2)},
                    {ValueId(4), Way::kIn, StepId(2), StepId(3)}};
  written.host = Host{.out = 25, .in = 12, .latency_ns = 10'000, .budget = Bytes(64), .shared = true};
  const std::string text = format_plan(written);
  EXPECT_NE(text.find("\"version\":2"), std::string::npos) << text;
  const PlanRecord read = parse_plan(text, "p");
  EXPECT_EQ(read.copies, written.copies);
  EXPECT_EQ(read.host, written.host);
  EXPECT_TRUE(read.warnings.empty());
  written.host->budget.reset();
  EXPECT_EQ(parse_plan(format_plan(written), "p").host, written.host);
}

TEST(PlanFiles, WithoutCopiesAreOfVersionOneToTheByte) {
  PlanRecord plan;
  plan.steps = {0, 1};
  const std::string text = format_plan(plan);
  EXPECT_NE(text.find("\"version\":1"), std::string::npos) << text;
  plan.host = Host{.out = 25, .in = 12, .budget = std::nullopt};
  EXPECT_EQ(format_plan(plan), text);
}

TEST(PlanFiles, WithACopyOrHostThatIsNoneAreRefused) {
  const auto message = [](const std::string& rest) {
    try {
      parse_plan(R"({"format":"remat.plan","version":2,"steps":[0],)" + rest + "}", "p");
    } catch (const InputError& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  EXPECT_NE(message(R"("copies":[{"value":0,"way":"up","issue":0,"wait":1}])").find("up"), std::string::npos);
  EXPECT_NE(message(R"("copies":[{"value":-1,"way":"out","issue":0,"wait":1}])").find("copy 0"),
            std::string::npos);
  EXPECT_NE(message(R"("copies":[{"value":0,"way":"out","issue":0,"wait":2147483648}])").find("2147483648"),
            std::string::npos);
  EXPECT_NE(message(R"("machine":{"out":0,"in":1})").find("positive"), std::string::npos);
  EXPECT_NE(message(R"("machine":{"out":1})").find("in"), std::string::npos);
}

TEST(PlanFiles, KeepTheLargestSeedAndEveryDigitOfTheOverhead) {
  PlanRecord plan;
  plan.seed = ~std::uint64_t{0};
  plan.overhead = 0.1 + 0.2;
  const PlanRecord read = parse_plan(format_plan(plan), "p");
  EXPECT_EQ(read.seed, plan.seed);
  EXPECT_EQ(read.overhead, plan.overhead);
}

TEST(PlanFiles, NeedOnlyStepsAndThenClaimNothingElse) {
  const PlanRecord read = parse_plan(R"({"format":"remat.plan","version":1,"steps":[1,0]})", "p");
  EXPECT_EQ(read.order, OrderMode::kFree);
  EXPECT_FALSE(read.budget || read.peak || read.duration || read.overhead || read.peak_bound ||
               read.duration_bound);
  EXPECT_TRUE(read.status.empty());
}

TEST(PlanFiles, NameUnknownKeysInOneWarning) {
  const PlanRecord read =
      parse_plan(R"({"format":"remat.plan","version":1,"steps":[],"host":"a","bounds":{"x":1}})", "p.json");
  EXPECT_EQ(read.warnings, std::vector<std::string>{"p.json: ignored unknown keys: host, bounds.x"});
}

struct BadPlan {
  std::string text, message;
};

TEST(PlanFiles, AreRefusedWithOneClearLine) {
  const std::string head = R"({"format":"remat.plan","version":1,)";
  const std::vector<BadPlan> cases{
      {"", "p: the file is empty"},
      {"{}", "p:1:2: the key 'format' is missing"},
      {R"({"format":"remat.graph"})", "p:1:23: 'format': found 'remat.graph' instead of 'remat.plan'"},
      {R"({"format":"remat.plan","version":3})",
       "p:1:35: 'version': version 3 is not supported; this reader knows versions 1 to 2"},
      {head + "}",
       "p:1:36: not valid JSON: syntax error while parsing object key - unexpected '}'; expected string "
       "literal"},
      {R"({"format":"remat.plan","version":1})", "p:1:35: the key 'steps' is missing"},
      {head + R"("steps":[0,"1"]})", "p:1:49: 'steps': entry 1: found the text '1' instead of an integer"},
      {head + R"("steps":[0,1.5]})",
       "p:1:50: 'steps': entry 1: found the fraction 1.5 instead of an integer"},
      {head + R"("order":"loose","steps":[]})",
       "p:1:50: 'order': found 'loose' instead of one of 'fixed', 'free'"},
      {head + R"("status":"done","steps":[]})",
       "p:1:50: 'status': found 'done' instead of one of 'optimal', 'feasible', 'infeasible', 'unknown'"},
      {head + R"("peak":-1,"steps":[]})", "p:1:45: 'peak': -1 is outside [0, 4611686018427387904)"},
      {head + R"("seed":-1,"steps":[]})", "p:1:45: 'seed': found -1 instead of an integer in [0, 2^64)"},
      {head + R"("seed":18446744073709551616,"steps":[]})",
       "p:1:63: 'seed': 18446744073709551616 does not fit into 64 bits"},
      {head + R"("bounds":{"peak":0.5},"steps":[]})",
       "p:1:56: 'bounds': 'peak': found the fraction 0.5 instead of an integer"},
  };
  for (const BadPlan& bad : cases) {
    std::string message = "accepted";
    try {
      parse_plan(bad.text, "p");
    } catch (const InputError& error) {
      message = error.what();
    }
    EXPECT_EQ(message, bad.message) << bad.text;
  }
}

/// f0 -> f1 -> b1 -> b0, all of one byte and one tick: keep-all peaks at 3.
class CheckRecord : public ::testing::Test {
 protected:
  const Graph graph_ = training_chain(2);
  PlanRecord record_ = record_of(graph_, keep_all_plan(graph_), Bytes(3));
  std::vector<std::string> check() const { return check_record(graph_, record_); }
  using Lines = std::vector<std::string>;
};

TEST_F(CheckRecord, AcceptsTheTruth) { EXPECT_EQ(check(), Lines{}); }

TEST_F(CheckRecord, AcceptsStepsAlone) {
  record_ = PlanRecord();
  record_.steps = {0, 1, 2, 3};
  EXPECT_EQ(check(), Lines{});
}

TEST_F(CheckRecord, NamesEveryDifferenceWithBothNumbers) {
  const std::string hash = graph_hash(graph_);
  record_.graph_name = "other";
  record_.graph_hash = "0123456789abcdef";
  record_.peak = Bytes(2);
  record_.duration = Duration(5);
  record_.overhead = 0.25;
  record_.peak_bound = Bytes(4);
  record_.duration_bound = Duration(9);
  record_.status = "infeasible";
  EXPECT_EQ(check(),
            (Lines{"graph_hash: the plan says 0123456789abcdef, recomputed " + hash,
                   "graph: the plan says 'other', recomputed 'test'", "peak: the plan says 2, recomputed 3",
                   "duration: the plan says 5, recomputed 4", "overhead: the plan says 0.25, recomputed 0",
                   "bounds.peak: the plan says 4, but it reaches 3",
                   "bounds.duration: the plan says 9, but it reaches 4",
                   "status: the plan says infeasible, recomputed a valid plan"}));
}

TEST_F(CheckRecord, PutsTheBrokenRuleFirst) {
  record_.budget = Bytes(2);
  record_.peak = Bytes(1);
  EXPECT_EQ(check(), (Lines{"rule budget: step 2: memory 3 is over the budget 2",
                            "peak: the plan says 1, recomputed 3"}));
}

TEST_F(CheckRecord, StopsAtARuleThatLeavesNothingToSimulate) {
  record_.steps = {1, 0, 2, 3};
  EXPECT_EQ(
      check(),
      Lines{"rule input_ready: step 0: op 1 'op1' reads value 0, but its producer op 0 'op0' has not run"});
  record_.steps = {0, 1, 2};
  EXPECT_EQ(check(), Lines{"rule every_op_runs: op 3 'op3' never runs"});
  record_.steps = {0, 1, 2, 4};
  EXPECT_EQ(check(), Lines{"rule op_exists: step 3: op index 4 is not one of the 4 ops"});
}

}  // namespace
}  // namespace remat
