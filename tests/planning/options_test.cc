// Planners' option tables: their entries, refused values, and plans with random values.
#include "planning/options.h"

#include <gtest/gtest.h>

#include <cmath>
#include <iomanip>
#include <limits>
#include <set>
#include <sstream>

#include "helpers/errors.h"
#include "helpers/graphs.h"
#include "helpers/options.h"
#include "remat/error.h"
#include "remat/host.h"
#include "remat/keep_all.h"
#include "remat/random.h"

namespace remat {
namespace {

struct Options {
  std::int64_t rounds = 4;
  double share = 0.5;
  bool polish = true;
  std::string form = "auto", names = "a+b";
};

void refuse_spaces(const std::string& text) {
  if (text.find(' ') != std::string::npos) throw UsageError("no spaces");
}

const OptionTable<Options>& table() {
  static const OptionTable<Options> kTable =
      OptionTable<Options>("test")
          .integer("rounds", &Options::rounds, 0, 9, "rounds", "how many")
          .number("share", &Options::share, 1e-3, 1, "", "of the limits")
          .flag("polish", &Options::polish, "at the end")
          .choice("form", &Options::form, {"auto", "stage"}, "the model")
          .text("names", &Options::names, refuse_spaces, "joined by +");
  return kTable;
}

std::string refusal_of(const PlanOptions& given) {
  return testing::usage_error([&] { table().read(given); });
}

TEST(OptionTable, ReadsWhatWasGivenAndLeavesTheRest) {
  const Options read =
      table().read({.set = {{"rounds", "9"}, {"share", "0.001"}, {"polish", "off"}, {"form", "stage"}}});
  EXPECT_EQ(read.rounds, 9);
  EXPECT_EQ(read.share, 0.001);
  EXPECT_FALSE(read.polish);
  EXPECT_EQ(read.form, "stage");
  EXPECT_EQ(read.names, "a+b");
}

TEST(OptionTable, ListsNameTypeDefaultRangeUnitAndSentence) {
  const auto rows = table().list();
  ASSERT_EQ(rows.size(), 5u);
  EXPECT_EQ(rows[0].name, "rounds");
  EXPECT_EQ(rows[0].default_value, "4");
  EXPECT_EQ(rows[0].unit, "rounds");
  EXPECT_EQ(rows[0].description, "how many");
  const std::string ranges[] = {"[0, 9]", "[0.001, 1]", "on, off", "auto, stage", ""};
  const std::string types[] = {"integer", "number", "flag", "choice", "text"};
  for (std::size_t i = 0; i < rows.size(); ++i) {
    EXPECT_EQ(values_of(rows[i]), ranges[i]);
    EXPECT_EQ(to_string(rows[i].type), types[i]);
  }
}

TEST(OptionTable, RefusesWithNameValueAndRange) {
  EXPECT_EQ(refusal_of({.set = {{"rounds", "10"}}}),
            "planner test: option rounds=10 is not an integer in [0, 9]");
  EXPECT_EQ(refusal_of({.set = {{"rounds", "1.5"}}}),
            "planner test: option rounds=1.5 is not an integer in [0, 9]");
  EXPECT_EQ(refusal_of({.set = {{"share", "nan"}}}),
            "planner test: option share=nan is not a number in [0.001, 1]");
  EXPECT_EQ(refusal_of({.set = {{"polish", "maybe"}}}), "planner test: option polish=maybe is not on or off");
  EXPECT_EQ(refusal_of({.set = {{"names", "a b"}}}), "planner test: option names=a b: no spaces");
  EXPECT_NE(refusal_of({.set = {{"form", "events"}}}).find("option form=events is not one of "),
            std::string::npos);
  EXPECT_NE(refusal_of({.set = {{"round", "1"}}}).find("did you mean 'rounds'?"), std::string::npos);
}

std::string spell(double number) {
  std::ostringstream text;
  text << std::setprecision(17) << number;
  return text.str();
}

/// Values that the option refuses, among them those just outside its range.
std::vector<std::string> wrong_values(const OptionInfo& option) {
  std::vector<std::string> wrong{"neither", ""};
  if (const auto* range = std::get_if<IntegerRange>(&option.range)) {
    wrong.insert(wrong.end(), {std::to_string(range->low - 1), std::to_string(range->high + 1),
                               "99999999999999999999", "1.5", "1 ", "0x1"});
  }
  if (const auto* range = std::get_if<NumberRange>(&option.range)) {
    constexpr double kInfinity = std::numeric_limits<double>::infinity();
    wrong.insert(wrong.end(), {spell(std::nextafter(range->low, -kInfinity)),
                               spell(std::nextafter(range->high, kInfinity)), "nan", "inf", "1e999", "1 "});
  }
  return wrong;
}

class OptionsOfPlanners : public ::testing::TestWithParam<std::string> {
 protected:
  const PlannerInfo& planner() const { return find_planner(GetParam()); }

  /// Options that the planner takes, each given half of the time, or only the one.
  PlanOptions random_options(Random& random, const OptionInfo* only = nullptr) const {
    PlanOptions given{.seed = static_cast<std::uint64_t>(random.below(100)), .set = {}};
    for (const OptionInfo& option : planner().options) {
      if (only ? &option == only : random.chance(0.5))
        given.set[option.name] = testing::random_value(option, random);
    }
    return given;
  }

  void expect_valid_plan(const Problem& problem, const PlanOptions& given) const {
    if (planner().supports(problem)) return;
    std::string said = GetParam();
    for (const auto& [name, text] : given.set) said += " --set " + name + "=" + text;
    SCOPED_TRACE(said);
    PlanResult result;
    try {
      Limits limits;
      limits.set_work(30'000);
      result = make_plan(problem, GetParam(), given, limits);
    } catch (const UsageError& refusal) {
      // Two options may not go together: all lower sets, and more of them than `max_sets`.
      EXPECT_GE(given.set.size(), 2u) << refusal.what();
      return;
    }
    if (!result.plan) {
      EXPECT_FALSE(has_plan(result));
      return;
    }
    const Plan& plan = *result.plan;
    EXPECT_FALSE(validate(*problem.graph, plan, problem.order));
    const Simulation cost = simulate(*problem.graph, plan, problem.host ? &*problem.host : nullptr);
    EXPECT_EQ(cost.peak, result.cost.peak);
    EXPECT_EQ(cost.duration, result.cost.duration);
    EXPECT_EQ(has_plan(result), within_budget(problem, cost));
  }
};

/// The problem, or the same with a host where the planner needs one. Copies are timed in nanoseconds.
Problem supported(const PlannerInfo& planner, Problem problem) {
  if (planner.supports(problem)) problem.host.emplace();
  return problem;
}

Graph in_nanoseconds(Graph graph) {
  graph.time_unit = "ns";
  return graph;
}

/// The counters without times.
Counters untimed(Counters counters) {
  std::erase_if(counters, [](const auto& counter) {
    return counter.first.ends_with("_ms") || counter.first.ends_with("_milliseconds");
  });
  return counters;
}

TEST_P(OptionsOfPlanners, AreListedWithDefaultsThatTheyTake) {
  std::set<std::string> names;
  for (const OptionInfo& option : planner().options) {
    EXPECT_TRUE(names.insert(option.name).second) << option.name << " is listed twice";
    EXPECT_FALSE(option.description.empty()) << option.name;
    EXPECT_EQ(option.description.find_first_of("\n|"), std::string::npos) << option.name;
    EXPECT_NO_THROW(parse_option(GetParam(), option, option.default_value)) << option.name;
  }
}

TEST_P(OptionsOfPlanners, GivenTheirDefaultsChangeNothing) {
  const Graph graph = in_nanoseconds(testing::training_chain(6));
  const Problem problem =
      supported(planner(), {.graph = &graph, .budget = Bytes(keep_all_peak(graph).count() * 8 / 10)});
  if (const auto reason = planner().supports(problem)) GTEST_SKIP() << *reason;
  PlanOptions defaults;
  for (const OptionInfo& option : planner().options) defaults.set[option.name] = option.default_value;
  const auto planned = [&](const PlanOptions& given) {
    Limits limits;
    limits.set_work(100'000);
    return make_plan(problem, GetParam(), given, limits);
  };
  const PlanResult without = planned({}), with = planned(defaults);
  EXPECT_EQ(without.plan, with.plan);
  EXPECT_EQ(untimed(without.counters), untimed(with.counters));
}

TEST_P(OptionsOfPlanners, GiveValidPlansAtRandomValues) {
  Random random(42);
  for (int round = 0; round < 6; ++round) {
    const Graph graph =
        in_nanoseconds(round % 2 == 0 ? testing::training_chain(3 + round) : testing::random_graph(random));
    const auto problem_at = [&](std::int64_t percent) {
      Problem problem{.graph = &graph, .budget = Bytes(keep_all_peak(graph).count() * percent / 100)};
      if (round % 3 == 1) problem.order = OrderMode::kFree;
      return supported(planner(), problem);
    };
    for (const OptionInfo& option : planner().options) {
      expect_valid_plan(problem_at(random.between(60, 99)), random_options(random, &option));
    }
    for (int all = 0; all < 3; ++all) {
      expect_valid_plan(problem_at(random.between(60, 99)), random_options(random));
    }
  }
}

TEST_P(OptionsOfPlanners, AreRefusedOutsideTheirRangesBeforePlanning) {
  const Graph graph = testing::training_chain(4);
  // No plan fits, which is known without a search.
  const Problem problem{.graph = &graph, .budget = Bytes(0)};
  const auto refusal = [&](const std::string& name, const std::string& value) {
    Limits limits;
    limits.set_work(0);
    const PlanOptions given{.set = {{name, value}}};
    return testing::usage_error([&] { make_plan(problem, GetParam(), given, limits); });
  };
  EXPECT_TRUE(refusal("no_such_option", "1")
                  .starts_with("planner " + GetParam() + " has no option 'no_such_option';"));
  for (const OptionInfo& option : planner().options) {
    for (const std::string& wrong : wrong_values(option)) {
      const std::string text = refusal(option.name, wrong);
      EXPECT_TRUE(text.starts_with("planner " + GetParam() + ": option " + option.name + "=" + wrong))
          << option.name << "=" << wrong << ": " << text;
      if (option.range.index() > 0) {
        EXPECT_TRUE(text.ends_with(values_of(option))) << text;
      }
      EXPECT_EQ(text.find('\n'), std::string::npos);
    }
  }
}

std::vector<std::string> planner_names() {
  std::vector<std::string> names;
  for (const PlannerInfo& planner : planners()) names.emplace_back(planner.name);
  return names;
}

INSTANTIATE_TEST_SUITE_P(Registry, OptionsOfPlanners, ::testing::ValuesIn(planner_names()),
                         [](const auto& each) { return each.param; });

}  // namespace
}  // namespace remat
