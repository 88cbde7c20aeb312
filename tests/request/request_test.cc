#include "remat/request.h"

#include <gtest/gtest.h>

#include "helpers/errors.h"
#include "helpers/graphs.h"
#include "helpers/options.h"
#include "remat/generate.h"
#include "remat/keep_all.h"
#include "remat/random.h"
#include "remat/reserved.h"
#include "remat/store.h"

namespace remat {
namespace {

Graph small_step() {
  TrainingOptions options;
  options.model = "gpt";
  options.settings.depth = 2;
  return training_graph(options);
}

Request request_for(const Graph& graph, int percent) {
  Request request;
  request.problem.graph = &graph;
  request.problem.budget = Bytes(keep_all_peak(graph).count() / 100 * percent);
  request.effort.work_limit = 5'000;
  return request;
}

Answer answered(const Request& request, PlanStore* store = nullptr) {
  Limits limits;
  request.effort.apply(limits);
  return answer(request, limits, store);
}

/// "--budget-on arena".
std::string as_flag(std::string_view option, std::string_view value) {
  return "--" + std::string(option) + (value.empty() ? "" : " ") + std::string(value);
}

TEST(Request, OptionsAreReadAsTheyAreWritten) {
  Random random(1);
  for (int round = 0; round < 200; ++round) {
    Request request, other;
    for (const OptionInfo& option : request_options()) {
      EXPECT_EQ(option_of(Request(), option.name), option.default_value) << option.name;
      if (option.type != OptionType::kText) {
        set_option(request, option.name, testing::random_value(option, random));
      }
    }
    for (const OptionInfo& option : request_options()) {
      set_option(other, option.name, option_of(request, option.name));
      EXPECT_EQ(option_of(other, option.name), option_of(request, option.name));
    }
  }
}

TEST(Request, RefusesWhatAnOptionDoesNotTake) {
  Request request;
  const auto refusal = [&](const std::string& name, const std::string& value) {
    return testing::usage_error([&] { set_option(request, name, value); });
  };
  EXPECT_EQ(refusal("order", "any"), "order='any' is not one of fixed, free");
  EXPECT_EQ(refusal("alignment", "0"), "alignment=0 is not an integer in [1, 4611686018427387903]");
  EXPECT_EQ(refusal("bugdet_on", "peak").find("unknown option 'bugdet_on': did you mean 'budget_on'?"), 0U);
  EXPECT_EQ(refusal("allocator", "x").find("allocator='x': allocator 'x' is not cuda"), 0U);
  EXPECT_EQ(testing::usage_error([&] { set_option(request, "order", "any", as_flag); }),
            "--order any is not one of fixed, free");
}

TEST(Request, SaysWhatDoesNotGoTogetherAsUsersWriteIt) {
  const Graph graph = testing::training_chain(3);
  Request request = request_for(graph, 90);
  request.budget_on = Measure::kArena;
  request.problem.host.emplace();
  EXPECT_EQ(testing::usage_error([&] { check_request(request); }),
            "budget_on='arena' and host= do not go together");
  EXPECT_EQ(testing::usage_error([&] { check_request(request, as_flag); }),
            "--budget_on arena and --host do not go together");
  request.problem.host.reset();
  request.executor = Executor::kPartitioner;
  EXPECT_EQ(testing::usage_error([&] { check_request(request); }),
            "executor='partitioner' goes with budget_on='peak' only");
  request = request_for(graph, 90);
  request.planner = "best";
  EXPECT_EQ(testing::usage_error([&] { check_request(request); }).find("unknown planner 'best'"), 0U);
}

/// Every combination of choices is refused in one line that names a given option, or answered correctly.
TEST(Request, EveryCombinationIsAnsweredOrRefused) {
  const Graph graph = small_step();
  std::vector<const OptionInfo*> choices;
  for (const OptionInfo& option : request_options()) {
    if (option.type == OptionType::kChoice) choices.push_back(&option);
  }
  int answers = 0, refusals = 0;
  const std::function<void(Request, std::size_t)> each = [&](Request request, std::size_t at) {
    if (at < choices.size()) {
      for (const std::string& value : choices[at]->choices) {
        set_option(request, choices[at]->name, value);
        each(request, at + 1);
      }
      return;
    }
    std::string text;
    for (const OptionInfo* option : choices) {
      text += spelled_for_python(option->name, option_of(request, option->name)) + " ";
    }
    SCOPED_TRACE(text);
    try {
      check_request(request);
    } catch (const UsageError& error) {
      ++refusals;
      const std::string line = error.what();
      EXPECT_NE(text.find(line.substr(0, line.find(' '))), std::string::npos) << line;
      EXPECT_EQ(testing::usage_error([&] { answered(request); }), error.what());
      return;
    }
    ++answers;
    const Answer found = answered(request);
    EXPECT_EQ(found.packed.has_value(), request.budget_on == Measure::kArena && found.result.plan);
    EXPECT_EQ(found.peaks.has_value(), request.budget_on == Measure::kReserved && found.result.plan);
    EXPECT_EQ(found.executor_plan.has_value(), request.executor != Executor::kRemat);
    EXPECT_EQ(found.full.has_value(), request.executor != Executor::kRemat);
    EXPECT_EQ(has_plan(found.result), found.result.plan && found.footprint <= request.problem.budget);
    if (found.result.plan) {
      EXPECT_GE(found.footprint, found.result.cost.peak);
    }
  };
  each(request_for(graph, 95), 0);
  EXPECT_EQ(answers, 10);
  EXPECT_EQ(refusals, 26);
}

TEST(Request, TheCallsBeforeItAnswerTheSame) {
  const Graph graph = small_step();
  Request request = request_for(graph, 95);
  const auto limited = [&](const auto& run) {
    Limits limits;
    request.effort.apply(limits);
    return run(limits);
  };
  EXPECT_EQ(answered(request).result.plan,
            limited([&](Limits& limits) { return make_plan(request.problem, "auto", {}, limits).plan; }));
  request.budget_on = Measure::kArena;
  const ArenaPlan arena =
      limited([&](Limits& limits) { return make_arena_plan(request.problem, "auto", {}, 64, limits); });
  const Answer packed = answered(request);
  EXPECT_EQ(packed.result.plan, arena.result.plan);
  EXPECT_EQ(packed.footprint, arena.arena());
  request.budget_on = Measure::kReserved;
  const ReservedPlan reserved =
      limited([&](Limits& limits) { return make_reserved_plan(request.problem, "auto", {}, {}, limits); });
  ASSERT_TRUE(reserved.result.plan);
  EXPECT_EQ(answered(request).peaks, reserved.peaks);
  request.budget_on = Measure::kPeak;
  for (const Executor executor : {Executor::kPartitioner, Executor::kCheckpoint}) {
    request.executor = executor;
    const Answer found = answered(request);
    const ExecutorPlan alone = limited([&](Limits& limits) {
      Limits half(limits, 0.5);
      return make_executor_plan(request.problem, executor, {}, half);
    });
    EXPECT_EQ(found.result.plan, alone.result.plan);
    EXPECT_LE(found.full->cost.duration, found.result.cost.duration);
  }
}

TEST(Request, LooksIntoAStoreOnlyWhereThatIsAllowed) {
  const Graph graph = small_step();
  Request request = request_for(graph, 95);
  request.problem.budget = keep_all_peak(graph);  // all planners end at once
  PlanStore store;
  answered(request, &store);
  EXPECT_TRUE(store.all(graph, OrderMode::kFixed).empty()) << "a work limit asks for the same plan always";
  request.effort.work_limit.reset();
  request.planner = "keep_all";
  answered(request, &store);
  EXPECT_TRUE(store.all(graph, OrderMode::kFixed).empty()) << "keep_all does not start from plans";
  request.planner = "search";
  answered(request, &store);
  EXPECT_FALSE(store.all(graph, OrderMode::kFixed).empty());
}

TEST(Request, AFileSaysWhatWasAskedWhereItCanBeAskedAgain) {
  const Graph graph = testing::training_chain(3);
  Request request = request_for(graph, 90);
  const PlanResult result = answered(request).result;
  const PlanRecord record = make_record(request, result);
  ASSERT_TRUE(record.request);
  EXPECT_EQ(record.request->planner, "auto");
  EXPECT_EQ(record.request->work_limit, 5'000);
  request.budget_on = Measure::kArena;
  EXPECT_FALSE(make_record(request, result).request);
}

}  // namespace
}  // namespace remat
