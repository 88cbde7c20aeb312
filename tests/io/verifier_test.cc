// Agreement on random plans with two independent verifiers: this repository's, and an older one, next to the
// instances, without outputs over inputs.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "helpers/graphs.h"
#include "helpers/long.h"
#include "helpers/places.h"
#include "remat/bounds.h"
#include "remat/io.h"
#include "remat/keep_all.h"

namespace remat {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

const int kGraphs = testing::is_long() ? 1000 : 100;
constexpr int kPlansPerGraph = 10;

/// Runs the verifier's own main program in one interpreter for each line "GRAPH PLAN" of its input, and
/// prints its answers line by line.
constexpr const char* kDriver = R"(
import contextlib, io, sys
source = open(sys.argv[1]).read()
program = compile(source, sys.argv[1], "exec")
for line in open(sys.argv[2]):
    sys.argv = [sys.argv[0]] + line.split()
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        try:
            exec(program, {"__name__": "__main__"})
        except SystemExit:
            pass
    print(out.getvalue().strip(), flush=False)
)";

/// Valid plans, and plans with one thing broken: a step dropped, doubled, moved or out of range.
std::vector<std::int64_t> random_steps(const Graph& graph, Random& random) {
  const Plan plan = testing::random_plan(graph, random, static_cast<int>(random.below(12)));
  std::vector<std::int64_t> steps;
  for (OpId op : plan.steps) steps.push_back(op.index());
  if (random.chance(0.5)) return steps;
  const auto n = static_cast<std::int64_t>(steps.size());
  const auto at = steps.begin() + random.below(n);
  switch (random.below(5)) {
    case 0:
      steps.erase(at);
      break;
    case 1:
      steps.insert(at, random.below(static_cast<std::int64_t>(graph.num_ops())));
      break;
    case 2:
      std::swap(*at, steps[static_cast<std::size_t>(random.below(n))]);
      break;
    case 3:
      *at = random.chance(0.5) ? static_cast<std::int64_t>(graph.num_ops()) : -1;
      break;
    case 4:
      random.shuffle(std::span(steps));
      break;
  }
  return steps;
}

Host random_host(Random& random) {
  const auto bandwidth = [&] { return 100'000 * (1 + random.below(50)) + random.below(3); };
  Host host{.out = bandwidth(), .in = bandwidth(), .budget = std::nullopt, .shared = random.chance(0.5)};
  if (random.chance(0.5)) host.latency_ns = random.below(4000);
  return host;
}

/// Copies out of random values, and mostly in again: in a gap between two uses, or, one in four, anywhere.
/// Listed in the sequence of issue but for one plan in twenty.
std::vector<Copy> random_copies(const Graph& graph, const std::vector<std::int64_t>& steps, Random& random) {
  const auto n = std::ssize(steps);
  std::vector<Copy> copies;
  for (ValueId v : graph.values()) {
    if (random.chance(0.6) || (graph.is_graph_input(v) && random.chance(0.97))) continue;
    std::vector<std::int64_t> uses;
    for (std::int64_t s = 0; s < n; ++s) {
      const std::int64_t index = steps[static_cast<std::size_t>(s)];
      if (index < 0 || index >= std::ssize(graph.duration)) continue;
      const auto has = [&](auto row) { return std::ranges::find(row, v) != row.end(); };
      if (has(graph.inputs[OpId(index)]) || has(graph.outputs[OpId(index)])) uses.push_back(s);
    }
    std::int64_t from = 0, to = n;
    if (!uses.empty() && random.chance(0.9)) {
      const auto gap = static_cast<std::size_t>(random.below(std::ssize(uses)));
      from = uses[gap];
      to = gap + 1 < uses.size() ? uses[gap + 1] : n;
    }
    if (from >= to) continue;
    const std::int64_t issue = random.between(from, to - 1), wait = random.between(issue + 1, to);
    copies.push_back({v, Way::kOut, StepId(issue), StepId(wait)});
    for (bool again = random.chance(0.8); again; again = random.chance(0.2)) {
      const std::int64_t back = random.between(wait, to), use = random.between(back, to);
      copies.push_back({v, Way::kIn, StepId(back), StepId(use)});
    }
    if (random.chance(0.03)) copies.push_back({v, Way::kOut, StepId(issue), StepId(wait)});
    if (random.chance(0.03)) copies.push_back({v, Way::kIn, StepId(random.below(n)), StepId(n)});
  }
  if (random.chance(0.95)) {
    std::ranges::stable_sort(copies, {}, [](const Copy& copy) { return copy.issue; });
  }
  return copies;
}

bool is_in_sequence(const std::vector<Copy>& copies) {
  for (Way way : {Way::kOut, Way::kIn}) {
    std::vector<StepId> issues;
    for (const Copy& copy : copies) {
      if (copy.way == way) issues.push_back(copy.issue);
    }
    if (!std::ranges::is_sorted(issues)) return false;
  }
  return true;
}

/// In the verifiers' format.
std::string words_of(const Host& host) {
  std::array<char, 32> latency{};
  std::snprintf(latency.data(), latency.size(), "0.%09lld", static_cast<long long>(host.latency_ns));
  return " " + std::to_string(host.out) + " " + std::to_string(host.in) + " " + latency.data() +
         (host.shared ? " shared" : "");
}

struct Case {
  std::string graph_text, plan_text;
  LoadedGraph loaded;
  PlanRecord plan;
};

struct Script {
  const char* name;
  fs::path path;
  double over;  ///< share of graphs with outputs over inputs, and of those with generator states
  bool copies;
};

class Verifier : public ::testing::TestWithParam<Script> {
 protected:
  Verifier() {
    std::string name = (fs::temp_directory_path() / "remat_verifier_XXXXXX").string();
    folder_ = ::mkdtemp(name.data());
  }
  ~Verifier() override { fs::remove_all(folder_); }

  std::vector<Case> write_cases() {
    Random random(2024);
    const testing::RandomShape shape{.min_ops = 1,
                                     .max_ops = 30,
                                     .max_values = 40,
                                     .after = false,
                                     .over = GetParam().over,
                                     .states = GetParam().over};
    std::ofstream list(folder_ / "list");
    std::vector<Case> cases;
    for (int g = 0; g < kGraphs; ++g) {
      Graph graph = testing::random_graph(random, shape);
      if (GetParam().copies) {
        // The older one divides by the keep-all peak.
        while (keep_all_peak(graph) == Bytes()) graph = testing::random_graph(random, shape);
        graph.time_unit = random.chance(0.5) ? "us" : "ms";
      }
      const std::string graph_text = format_graph(graph);
      const LoadedGraph loaded = parse_graph(graph_text, "graph");
      const fs::path graph_path = folder_ / ("g" + std::to_string(g));
      std::ofstream(graph_path) << graph_text;
      for (int p = 0; p < kPlansPerGraph; ++p) {
        PlanRecord plan;
        plan.order = OrderMode::kFree;
        plan.steps = random_steps(loaded.graph, random);
        if (GetParam().copies) {
          plan.copies = random_copies(loaded.graph, plan.steps, random);
          plan.host = random_host(random);
        }
        const std::string plan_text = format_plan(plan);
        const fs::path plan_path = folder_ / ("p" + std::to_string(cases.size()));
        std::ofstream(plan_path) << plan_text;
        list << graph_path.string() << " " << plan_path.string()
             << (plan.copies.empty() ? "" : words_of(*plan.host)) << "\n";
        cases.push_back({graph_text, plan_text, loaded, parse_plan(plan_text, "plan")});
      }
    }
    return cases;
  }
  fs::path folder_;
};

TEST_P(Verifier, AgreesOnRandomPlans) {
  const fs::path& script = GetParam().path;
  if (!fs::exists(script))
    GTEST_SKIP() << script << " is not there: the verifier is not part of the repository";
  const std::vector<Case> cases = write_cases();
  std::ofstream(folder_ / "driver.py") << kDriver;
  const std::string answers = (folder_ / "answers").string();
  const std::string command = "python3 " + (folder_ / "driver.py").string() + " " + script.string() + " " +
                              (folder_ / "list").string() + " > " + answers;
  ASSERT_EQ(std::system(command.c_str()), 0) << command;

  std::ifstream in(answers);
  std::string answer;
  int valid = 0, copied = 0, stalled = 0;
  for (const Case& one : cases) {
    ASSERT_TRUE(std::getline(in, answer)) << "the verifier gave fewer answers than there are plans";
    const Graph& graph = one.loaded.graph;
    const std::string shown = one.graph_text + one.plan_text + answer;
    const Json said = answer.starts_with("{") ? Json::parse(answer) : Json();
    // The verifier accepts a plan that leaves ops out and says so; to Remat it is broken.
    // The older one takes copies in any sequence.
    const bool expected =
        said.is_object() && said.at("all_ops").get<bool>() && is_in_sequence(one.plan.copies);
    ASSERT_EQ(check_record(graph, one.plan).empty(), expected) << shown;
    if (!expected) continue;
    ++valid;
    const Simulation cost =
        simulate(graph, recorded_plan(one.plan), one.plan.host ? &*one.plan.host : nullptr);
    ASSERT_EQ(cost.peak.count(), said.at("peak").get<std::int64_t>()) << shown;
    ASSERT_EQ(cost.duration.count(), said.at("duration").get<std::int64_t>()) << shown;
    if (!one.plan.copies.empty()) {
      ++copied;
      stalled += cost.traffic.stalled > Duration();
      ASSERT_EQ(cost.traffic.stalled.count(), said.at("stalled").get<std::int64_t>()) << shown;
      ASSERT_EQ(cost.traffic.host_peak.count(), said.at("host_peak").get<std::int64_t>()) << shown;
    }
    ASSERT_EQ(simulate(graph, keep_all_plan(graph)).peak.count(),
              said.at("keep_all_peak").get<std::int64_t>())
        << shown;
    ASSERT_EQ(graph.base_duration.count(), said.at("base_duration").get<std::int64_t>()) << shown;
    ASSERT_EQ(floor_bound(graph).peak.count(), said.at("floor").get<std::int64_t>()) << shown;
  }
  // Both sides of the agreement are tested.
  EXPECT_GT(valid, kGraphs * kPlansPerGraph / (GetParam().copies ? 5 : 4));
  EXPECT_LT(valid, kGraphs * kPlansPerGraph * 3 / 4 + kGraphs);
  RecordProperty("valid_plans", valid);
  if (GetParam().copies) {
    EXPECT_GT(copied, kGraphs);
    EXPECT_GT(stalled, kGraphs / 2);
    RecordProperty("valid_plans_with_copies", copied);
    RecordProperty("with_stalls", stalled);
  }
}

Script ours(bool copies) {
  return {copies ? "OursWithCopies" : "Ours", testing::tools_dir() / "verify_plan.py", 0.8, copies};
}
Script shared(bool copies) {
  return {copies ? "SharedWithCopies" : "Shared", testing::shared_dir() / "tools" / "verify_plan.py", 0,
          copies};
}

INSTANTIATE_TEST_SUITE_P(All, Verifier,
                         ::testing::Values(ours(false), ours(true), shared(false), shared(true)),
                         [](const auto& test) { return test.param.name; });

}  // namespace
}  // namespace remat
