// The command line, through the real binary: its output and exit codes.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>
#include <thread>

#include "cli/run_cli.h"
#include "helpers/graphs.h"
#include "remat/bounds.h"
#include "remat/io.h"
#include "remat/planner.h"

namespace remat {
namespace {

namespace fs = std::filesystem;
using testing::CliRun;
using testing::read_terminal;
using testing::run_cli;

/// A training chain of 12 layers: keep-all peaks at 13 bytes, 4 are enough, 3 are not.
class Cli : public ::testing::Test {
 protected:
  Cli() { save_graph(chain_, graph_); }
  void expect_one_line(const CliRun& run, int code, const std::string& line) const {
    EXPECT_EQ(run.code, code);
    EXPECT_EQ(run.err, "remat: " + line + "\n");
  }
  const testing::TemporaryFolder folder_;
  const std::string graph_ = folder_ / "chain.json";
  const Graph chain_ = testing::training_chain(12);
};

TEST_F(Cli, PlanPrintsItsKeysInSequenceAndWritesAPlanThatChecks) {
  const CliRun run = run_cli({"plan", graph_, "--budget", "100%", "-o", folder_ / "plan.json"});
  ASSERT_EQ(run.code, 0) << run.err;
  EXPECT_EQ(run.err, "");
  std::size_t at = 0;
  for (const char* key : {"status", "stopped_by", "planner", "order", "budget", "peak", "keep_all_peak",
                          "duration", "base_duration", "overhead", "recomputed_ops", "peak_lower_bound",
                          "duration_lower_bound", "gap", "seconds", "seed"}) {
    const std::size_t next = run.out.find("\n" + std::string(key) + " = ", at ? at - 1 : 0);
    if (std::string(key) == "status") {
      EXPECT_TRUE(run.out.starts_with("status = optimal\n")) << run.out;
      continue;
    }
    ASSERT_NE(next, std::string::npos) << key << " is missing or out of sequence in\n" << run.out;
    at = next + 1;
  }
  EXPECT_EQ(run.value("peak"), "13");
  EXPECT_EQ(run.value("overhead"), "0");
  EXPECT_EQ(run.value("plan_file"), folder_ / "plan.json");
  const CliRun check = run_cli({"check", graph_, folder_ / "plan.json"});
  EXPECT_EQ(check.code, 0) << check.err;
  EXPECT_EQ(check.value("valid"), "true");
  EXPECT_EQ(check.value("peak"), "13");
}

TEST_F(Cli, PlanMeetsATightBudget) {
  const CliRun run = run_cli({"plan", graph_, "-b", "6", "--json", "-o", folder_ / "plan.json"});
  ASSERT_EQ(run.code, 0) << run.err;
  const auto said = run.json();
  EXPECT_LE(said.at("peak").get<int>(), 6);
  EXPECT_GT(said.at("overhead").get<double>(), 0);
  EXPECT_EQ(said.at("duration").get<int>(), 24 + said.at("recomputed_ops").get<int>());
  EXPECT_EQ(run_cli({"check", graph_, folder_ / "plan.json", "--budget", "6"}).code, 0);
}

TEST_F(Cli, ProvedInfeasibleExitsWith2AndNamesABudgetThatWorks) {
  const CliRun run =
      run_cli({"plan", graph_, "-b", "2", "--json", "--time-limit", "1s", "-o", folder_ / "plan.json"});
  EXPECT_EQ(run.code, 2);
  const auto said = run.json();
  EXPECT_EQ(said.at("status"), "infeasible");
  EXPECT_TRUE(said.at("peak").is_null());
  const auto smallest = said.at("smallest_known_budget").get<int>();
  EXPECT_NE(run.err.find("remat: proved infeasible: no plan of fixed order fits into 2 bytes"),
            std::string::npos)
      << run.err;
  EXPECT_NE(run.err.find("the smallest budget known to work is " + std::to_string(smallest)),
            std::string::npos)
      << run.err;
  EXPECT_FALSE(fs::exists(folder_ / "plan.json"));
  EXPECT_EQ(run_cli({"plan", graph_, "-b", std::to_string(smallest), "--time-limit", "2s"}).code, 0)
      << "the budget it names must work";
}

TEST_F(Cli, NothingFoundExitsWith3AndNamesTheBestPeak) {
  const CliRun run =
      run_cli({"plan", graph_, "-b", "90%", "--planner", "keep_all", "-o", folder_ / "plan.json"});
  expect_one_line(run, 3,
                  "no plan within 90% (11 bytes) found, nothing proved; the best peak found is 13 bytes; " +
                      (folder_ / "plan.json") + " is not written");
  EXPECT_EQ(run.value("status"), "unknown");
  EXPECT_EQ(run.value("best_peak"), "13");
  EXPECT_EQ(run.value("peak"), "-");
  EXPECT_FALSE(fs::exists(folder_ / "plan.json"));
}

/// As on a terminal of 80 columns.
CliRun run_for_people(const std::vector<std::string>& arguments) {
  return run_cli(arguments, "", [] { ::setenv("REMAT_COLUMNS", "80", 1); });
}

std::size_t longest_line(const std::string& text) {
  std::istringstream lines(text);
  std::size_t longest = 0;
  for (std::string line; std::getline(lines, line);) longest = std::max(longest, line.size());
  return longest;
}

TEST_F(Cli, OnATerminalSizesHaveUnitsAndSharesAndTablesFitItsWidth) {
  const std::string graph = folder_ / "gpt.json";
  ASSERT_EQ(run_cli({"generate", "gpt", "--depth", "8", "--durations", "roofline", "-o", graph}).code, 0);
  const std::vector<std::string> compare{"compare",      graph,        "--budget",
                                         "80%",          "--planners", "auto,chen,keep_all,checkmate_milp",
                                         "--work-limit", "20000"};
  const CliRun compared = run_for_people(compare);
  EXPECT_LE(longest_line(compared.out), 80) << compared.out;
  EXPECT_TRUE(compared.value("budget").ends_with(" GiB (80.0 % of keep-all)")) << compared.out;
  EXPECT_TRUE(compared.value("base_duration").ends_with(" ms")) << compared.out;
  EXPECT_NE(compared.out.find("over budget"), std::string::npos) << "keep_all's row";
  EXPECT_EQ(compared.out.find("unknown"), std::string::npos) << compared.out;
  for (const std::vector<std::string>& command :
       {std::vector<std::string>{"sweep", graph, "--points", "4", "--work-limit", "20000"},
        std::vector<std::string>{"info", graph}, std::vector<std::string>{"planners"},
        std::vector<std::string>{"plan", graph, "-b", "80%", "--work-limit", "20000"}}) {
    const CliRun run = run_for_people(command);
    EXPECT_EQ(run.code, 0) << run.err;
    EXPECT_LE(longest_line(run.out), 80) << run.out;
  }
}

TEST_F(Cli, ThroughAPipeAndAsJsonNumbersStayAsTheyAre) {
  const std::vector<std::string> plan{"plan", graph_, "-b", "50%", "--work-limit", "1000"};
  const CliRun piped = run_cli(plan);
  EXPECT_EQ(piped.value("budget"), "6");
  EXPECT_EQ(piped.value("keep_all_peak"), "13");
  std::vector<std::string> as_json = plan;
  as_json.emplace_back("--json");
  EXPECT_EQ(run_for_people(as_json).json().at("budget"), 6);
  EXPECT_EQ(run_for_people(plan).value("budget"), "6 B (46.2 % of keep-all)");
}

TEST_F(Cli, CountersAreForWhoAsks) {
  std::vector<std::string> plan{"plan", graph_, "-b", "50%", "--work-limit", "1000"};
  EXPECT_EQ(run_cli(plan).out.find("counter."), std::string::npos);
  plan.emplace_back("--verbose");
  EXPECT_NE(run_cli(plan).out.find("counter."), std::string::npos);
  plan.back() = "--json";
  EXPECT_NE(run_cli(plan).out.find("counter."), std::string::npos);
}

TEST_F(Cli, TheLogOfAutoIsForWhoAsks) {
  std::vector<std::string> plan{"plan", graph_, "-b", "50%", "--work-limit", "1000"};
  EXPECT_EQ(run_cli(plan).out.find("log:"), std::string::npos);
  plan.emplace_back("--verbose");
  const std::string table = run_cli(plan).out;
  const std::size_t begin = table.find("\nlog:\n");
  ASSERT_NE(begin, std::string::npos);
  for (const char* column :
       {" seconds ", " work ", " round ", " arm ", " duration_before ", " peak_after ", " gap\n"}) {
    EXPECT_NE(table.find(column, begin), std::string::npos) << column;
  }
  plan.back() = "--json";
  const auto log = run_cli(plan).json().at("log");
  EXPECT_EQ(log.at(0).at("arm"), "keep_all");
  EXPECT_EQ(log.at(0).at("round"), 1);
  EXPECT_TRUE(log.at(0).at("duration_before").is_null());
  plan.insert(plan.end(), {"--planner", "search"});
  EXPECT_TRUE(run_cli(plan).json().at("log").empty());
}

TEST_F(Cli, TheWidthIsThatOfTheTerminal) {
  const int terminal = ::posix_openpt(O_RDWR | O_NOCTTY);
  ASSERT_GE(terminal, 0);
  ASSERT_EQ(::grantpt(terminal), 0);
  ASSERT_EQ(::unlockpt(terminal), 0);
  const winsize size{.ws_row = 24, .ws_col = 50, .ws_xpixel = 0, .ws_ypixel = 0};
  const int held = ::open(::ptsname(terminal), O_RDWR | O_NOCTTY);
  ASSERT_EQ(::ioctl(terminal, TIOCSWINSZ, &size), 0);
  ASSERT_EQ(
      run_cli({"info", graph_, "--top", "1"}, ::ptsname(terminal), [] { ::unsetenv("REMAT_COLUMNS"); }).code,
      0);
  ::close(held);
  const std::string out = read_terminal(terminal);
  ::close(terminal);
  EXPECT_NE(out.find("keep_all_peak = 13 B"), std::string::npos) << out;
  EXPECT_LE(longest_line(out), 51) << "a carriage return stands before each line feed\n" << out;
}

TEST_F(Cli, ObjectivePeakGoesWithoutABudget) {
  const CliRun run =
      run_cli({"plan", graph_, "--objective", "peak", "--time-limit", "1s", "-o", folder_ / "plan.json"});
  EXPECT_EQ(run.code, 0) << run.err;
  EXPECT_EQ(run.value("budget"), "-");
  EXPECT_LT(std::stoi(run.value("peak")), 13);
  EXPECT_EQ(run_cli({"check", graph_, folder_ / "plan.json"}).code, 0);
}

TEST_F(Cli, ObjectivePeakIsInfeasibleAtOnceWhereTheBoundIsAboveTheBudget) {
  const CliRun run = run_cli({"plan", graph_, "--objective", "peak", "-b", "2", "--time-limit", "1s"});
  EXPECT_EQ(run.code, 2);
  EXPECT_EQ(run.value("status"), "infeasible");
  EXPECT_EQ(run.value("stopped_by"), "proof");
  EXPECT_LT(std::stod(run.value("seconds")), 0.5);
  EXPECT_EQ(run.value("peak"), "-");
}

TEST_F(Cli, SameSeedAndWorkLimitGiveTheSamePlan) {
  for (const char* name : {"a", "b"}) {
    ASSERT_EQ(
        run_cli({"plan", graph_, "-b", "6", "--work-limit", "20000", "--seed", "3", "-o", folder_ / name})
            .code,
        0);
  }
  EXPECT_EQ(read_file(folder_ / "a"), read_file(folder_ / "b"));
}

TEST_F(Cli, InfoSaysSizesPeakFloorAndWhatFillsThePeak) {
  const auto said = run_cli({"info", graph_, "--json"}).json();
  EXPECT_EQ(said.at("ops"), 24);
  EXPECT_EQ(said.at("values"), 24);
  EXPECT_EQ(said.at("edges"), 34);
  EXPECT_EQ(said.at("keep_all_peak"), 13);
  EXPECT_EQ(said.at("floor"), floor_bound(chain_).peak.count());
  EXPECT_EQ(said.at("peak_lower_bound"), best_peak_bound(chain_, OrderMode::kFixed).peak.count());
  EXPECT_EQ(said.at("largest_at_peak").size(), 10u);
  EXPECT_EQ(run_cli({"info", graph_, "--json", "--top", "99"}).json().at("largest_at_peak").size(), 13u)
      << "all instances at the peak fill it";
}

TEST_F(Cli, InfoSharesAddUpWithResidentInputsAndWorkspace) {
  save_graph(
      testing::make_graph({100}, {{.inputs = {0}, .output_bytes = {20}, .duration = 5, .workspace = 7}}, {1}),
      graph_);
  const auto said = run_cli({"info", graph_, "--json"}).json();
  EXPECT_EQ(said.at("keep_all_peak"), 127);
  EXPECT_EQ(said.at("resident"), 100);
  std::int64_t sum = 0;
  for (const auto& row : said.at("at_peak_by_kind")) sum += row.at("bytes").get<std::int64_t>();
  EXPECT_EQ(sum, 127);
}

TEST_F(Cli, CheckNamesTheFirstBrokenRuleWithStepAndNumbers) {
  PlanRecord plan;
  for (int i = 0; i < 24; ++i) plan.steps.push_back(i);
  std::swap(plan.steps[3], plan.steps[4]);
  save_plan(plan, folder_ / "swapped.json");
  const CliRun run = run_cli({"check", graph_, folder_ / "swapped.json"});
  expect_one_line(
      run, 1,
      (folder_ / "swapped.json") +
          ": rule input_ready: step 3: op 4 'op4' reads value 3, but its producer op 3 'op3' has not run");
  EXPECT_EQ(run.value("valid"), "false");
  EXPECT_EQ(run.value("rule"), "input_ready");
  EXPECT_EQ(run.value("step"), "3");
}

TEST_F(Cli, CheckTimesCopiesOnTheHostThatIsGiven) {
  Graph graph = testing::make_graph({}, {{{}, {4}, 2}, {{0}, {2}, 2}, {{1}, {1}, 2}, {{0, 2}, {1}, 2}}, {3});
  graph.time_unit = "us";
  save_graph(graph, graph_);
  PlanRecord plan;
  plan.steps = {0, 1, 2, 3};
  plan.copies = {{ValueId(0), Way::kOut, StepId(0), StepId(2)}, {ValueId(0), Way::kIn, StepId(3), StepId(3)}};
  const std::string path = folder_ / "copies.json";
  save_plan(plan, path);
  const auto untimed = run_cli({"check", graph_, path, "--json"}).json();
  EXPECT_EQ(untimed.at("peak"), 6);
  EXPECT_TRUE(untimed.at("duration").is_null());
  const auto timed = run_cli({"check", graph_, path, "--host", "1MB/s", "--json"}).json();
  EXPECT_EQ(timed.at("duration"), 14);
  EXPECT_EQ(timed.at("stalled"), 6);
  EXPECT_EQ(timed.at("bytes_out"), 4);
  EXPECT_EQ(timed.at("host_peak"), 4);
  EXPECT_DOUBLE_EQ(timed.at("busy_in").get<double>(), 4.0 / 14);
  const CliRun both_ways = run_cli({"check", graph_, path, "--host-out", "2MB/s", "--host-in", "1MB/s",
                                    "--host-latency", "1us", "--host-shared", "--json"});
  EXPECT_EQ(both_ways.json().at("duration"), 14);
  expect_one_line(run_cli({"check", graph_, path, "--host", "1MB/s", "--host-budget", "3"}), 1,
                  path + ": rule host_budget: host memory 4 is over the host's budget 3");
  expect_one_line(run_cli({"check", graph_, path, "--host-out", "1MB/s"}), 64,
                  "--host-out and --host-in go together, or with --host");
  graph.time_unit = "";
  save_graph(graph, graph_);
  const CliRun unknown = run_cli({"check", graph_, path, "--host", "1MB/s"});
  EXPECT_EQ(unknown.code, 1);
  EXPECT_NE(unknown.err.find("time unit is ''"), std::string::npos) << unknown.err;
}

TEST_F(Cli, CheckFindsAFalseClaim) {
  PlanRecord plan;
  for (int i = 0; i < 24; ++i) plan.steps.push_back(i);
  plan.peak = Bytes(12);
  save_plan(plan, folder_ / "false.json");
  expect_one_line(run_cli({"check", graph_, folder_ / "false.json"}), 1,
                  (folder_ / "false.json") + ": peak: the plan says 12, recomputed 13");
  plan.peak.reset();
  save_plan(plan, folder_ / "true.json");
  expect_one_line(run_cli({"check", graph_, folder_ / "true.json", "--budget", "12"}), 1,
                  (folder_ / "true.json") + ": rule budget: step 12: memory 13 is over the budget 12");
}

TEST_F(Cli, CompareShowsEveryPlannerAndWritesTheirPlans) {
  const CliRun run =
      run_cli({"compare", graph_, "-b", "6", "--time-limit", "1s", "--json", "--out-dir", folder_ / "plans"});
  ASSERT_EQ(run.code, 0) << run.err;
  std::set<std::string> shown;
  const auto said = run.json();
  for (const auto& row : said.at("planners")) {
    const std::string name = row.at("planner");
    shown.insert(name);
    const std::string path = folder_ / "plans/" + name + ".json";
    const bool fits = row.at("over_budget") == "no";
    EXPECT_EQ(fs::exists(path), fits) << name;
    const std::string over = folder_ / "plans/" + name + ".over_budget.json";
    EXPECT_EQ(fs::exists(over), row.at("over_budget") == "yes") << name;
    if (fs::exists(over)) {
      EXPECT_NE(run_cli({"check", graph_, over}).code, 0) << name;
    }
    if (fits) {
      EXPECT_EQ(run_cli({"check", graph_, path}).code, 0) << name;
    }
    if (row.at("status") == "not run") {
      EXPECT_NE(row.at("note"), "") << name;
    }
  }
  for (const PlannerInfo& planner : planners())
    EXPECT_TRUE(shown.contains(std::string(planner.name))) << planner.name;
}

TEST_F(Cli, ComparePrintsATable) {
  const CliRun run = run_cli({"compare", graph_, "-b", "12", "--planners", "keep_all,auto"});
  EXPECT_EQ(run.code, 0);
  EXPECT_NE(run.out.find("\n  planner   status"), std::string::npos) << run.out;
  EXPECT_NE(run.out.find("\n  keep_all  unknown"), std::string::npos) << run.out;
  EXPECT_NE(run.out.find("yes"), std::string::npos) << "a plan over the budget is marked\n" << run.out;
}

TEST_F(Cli, ConvertWritesRematGraphFromNodeLink) {
  std::ofstream(folder_ / "in") << R"({"nodes":[{"id":"a","cost_ram":3,"cost_cpu":1}],"links":[]})";
  const CliRun run = run_cli({"convert", folder_ / "in", "-o", folder_ / "out"});
  EXPECT_EQ(run.code, 0) << run.err;
  EXPECT_EQ(run.value("input_format"), "node-link");
  const LoadedGraph read = load_graph(folder_ / "out");
  EXPECT_EQ(read.format, GraphFormat::kRematGraph);
  EXPECT_EQ(read.graph, load_graph(folder_ / "in").graph);
}

TEST_F(Cli, PlannersListsTheRegistry) {
  const auto rows = run_cli({"planners", "--json"}).json().at("planners");
  ASSERT_EQ(rows.size(), planners().size());
  EXPECT_EQ(rows.front().at("name"), planners().front().name);
}

TEST_F(Cli, PlannersListsTheirOptions) {
  const auto rows = run_cli({"planners", "--options", "--json"}).json().at("options");
  std::size_t count = 0;
  for (const PlannerInfo& planner : planners()) count += planner.options.size();
  ASSERT_EQ(rows.size(), count);
  const auto slots = std::ranges::find_if(
      rows, [](const auto& row) { return row.at("planner") == "pofo" && row.at("option") == "slots"; });
  EXPECT_EQ(slots->at("type"), "integer");
  EXPECT_EQ(slots->at("default"), "500");
  EXPECT_EQ(slots->at("values"), "[1, 100000]");
  EXPECT_EQ(slots->at("unit"), "slots");
}

TEST_F(Cli, VersionAndHelpGoToStandardOutput) {
  EXPECT_EQ(run_cli({"--version"}).out.substr(0, 6), "remat ");
  const CliRun help = run_cli({"plan", "--help"});
  EXPECT_EQ(help.code, 0);
  EXPECT_NE(help.out.find("--budget"), std::string::npos);
  EXPECT_EQ(help.err, "");
}

TEST_F(Cli, BenchNamesThePythonThatItCannotRun) {
  setenv("REMAT_PYTHON", "/nowhere/python", 1);
  const CliRun run = run_cli({"bench", "kumar"});
  unsetenv("REMAT_PYTHON");
  expect_one_line(run, 1,
                  "bench needs the Python package ('make build' or 'pip install .'), and /nowhere/python "
                  "cannot be run: No such file or directory");
}

TEST_F(Cli, WrongUsageExitsWith64AndOneLine) {
  const std::string forms =
      "is not an amount of memory: write bytes (6442450944), bytes with a unit (6GiB, 800MB) or a share of "
      "the "
      "keep-all peak (75%)";
  expect_one_line(run_cli({}), 64, "A subcommand is required (see 'remat --help')");
  const CliRun command = run_cli({"plam"});
  EXPECT_EQ(command.code, 64);
  EXPECT_TRUE(
      command.err.starts_with("remat: unknown command 'plam': did you mean 'plan'? known: plan, info, "))
      << command.err;
  expect_one_line(run_cli({"plan"}), 64, "GRAPH is required (see 'remat plan --help')");
  expect_one_line(run_cli({"plan", graph_}), 64, "--budget is required (only --objective peak goes without)");
  expect_one_line(run_cli({"plan", graph_, "-b", "abc"}), 64, "budget 'abc' " + forms);
  expect_one_line(run_cli({"plan", graph_, "-b", "1e400"}), 64, "budget '1e400' " + forms);
  expect_one_line(run_cli({"plan", graph_, "-b", "-1GiB"}), 64, "budget '-1GiB' is negative");
  expect_one_line(run_cli({"plan", graph_, "-b", "0"}), 64,
                  "budget '0' is 0 bytes: a budget must be positive");
  expect_one_line(run_cli({"plan", graph_, "-b", "9", "--order", "loose"}), 64,
                  "--order: 'loose' is none of fixed, free (see 'remat plan --help')");
  expect_one_line(run_cli({"plan", graph_, "-b", "9", "--time-limit", "soon"}), 64,
                  "time limit 'soon' is not a time: write 10s, 500ms, 2m or 1h");
  expect_one_line(run_cli({"plan", graph_, "-b", "9", "--set", "k"}), 64, "--set 'k' is not KEY=VALUE");
  const CliRun option = run_cli({"plan", graph_, "-b", "9", "--planner", "keep_all", "--set", "k=1"});
  expect_one_line(option, 64, "planner keep_all has no option 'k'; it has none");
  expect_one_line(run_cli({"plan", graph_, "-b", "1", "--planner", "evict", "--set", "rounds=-1"}), 64,
                  "planner evict: option rounds=-1 is not an integer in [0, 1099511627776]");
  const CliRun unknown = run_cli({"plan", graph_, "-b", "9", "--planner", "magic"});
  EXPECT_EQ(unknown.code, 64);
  EXPECT_TRUE(unknown.err.starts_with("remat: unknown planner 'magic'; known: auto, keep_all, "))
      << unknown.err;
}

TEST_F(Cli, BudgetsAbove100PercentAreFine) {
  EXPECT_EQ(run_cli({"plan", graph_, "-b", "120 %"}).value("budget"), "15");
}

TEST_F(Cli, BadInputExitsWith1AndOneLine) {
  const std::string bad = folder_ / "bad";
  std::ofstream(bad) << "{\"format\":\"remat.graph\"";
  expect_one_line(
      run_cli({"info", bad}), 1,
      bad +
          ":1:23: not valid JSON: syntax error while parsing object - unexpected end of input; expected '}'");
  expect_one_line(run_cli({"info", folder_ / "none"}), 1,
                  "cannot read " + (folder_ / "none") + ": No such file or directory");
  expect_one_line(run_cli({"info", folder_.path().string()}), 1,
                  "cannot read " + folder_.path().string() + ": Is a directory");
  expect_one_line(run_cli({"check", graph_, graph_}), 1,
                  graph_ + ":1:23: 'format': found 'remat.graph' instead of 'remat.plan'");
}

TEST_F(Cli, NamesWithLineBreaksStayOnOneLine) {
  std::ofstream(folder_ / "bad")
      << R"({"format":"remat.graph","version":1,"values":[],)"
         R"("ops":[{"name":"two\nlines","duration":1,"inputs":[4],"outputs":[]}]})";
  expect_one_line(run_cli({"info", folder_ / "bad"}), 1,
                  (folder_ / "bad") + ": op 0 'two lines': input 4 is not one of the 0 values");
}

TEST_F(Cli, WarnsOfUnknownKeysOnStandardError) {
  std::ofstream(folder_ / "odd") << R"({"format":"remat.graph","version":1,"values":[],"colour":1,)"
                                    R"("ops":[{"name":"a","duration":1,"inputs":[],"outputs":[]}]})";
  const CliRun run = run_cli({"info", folder_ / "odd"});
  expect_one_line(run, 0, "warning: " + (folder_ / "odd") + ": ignored unknown keys: colour");
  EXPECT_EQ(run.value("ops"), "1");
}

TEST_F(Cli, AnInputIsNeverReplacedByAnOutputOfAnotherKind) {
  const std::string before = read_file(graph_);
  const auto refused = [&](const std::string& path) {
    return "cannot write " + path + ": it is the graph that was read from " + graph_;
  };
  fs::create_directory(folder_ / "plans");
  fs::create_symlink(graph_, folder_ / "plans/keep_all.json");
  fs::create_symlink(graph_, folder_ / "plans/7.json");
  fs::create_hard_link(graph_, folder_ / "hard");
  expect_one_line(run_cli({"plan", graph_, "-b", "100%", "-o", graph_}), 1, refused(graph_));
  expect_one_line(run_cli({"plan", graph_, "-b", "100%", "-o", folder_ / "hard"}), 1,
                  refused(folder_ / "hard"));
  expect_one_line(run_cli({"compare", graph_, "-b", "100%", "--out-dir", folder_ / "plans"}), 1,
                  refused(folder_ / "plans/keep_all.json"));
  expect_one_line(run_cli({"sweep", graph_, "--out-dir", folder_ / "plans"}), 1,
                  refused(folder_ / "plans/7.json"));
  expect_one_line(run_cli({"partition", graph_, "-o", graph_}), 1, refused(graph_));
  EXPECT_EQ(read_file(graph_), before);
  EXPECT_EQ(run_cli({"convert", graph_, "-o", graph_}).code, 0) << "a graph over a graph";
  EXPECT_EQ(load_graph(graph_).graph, chain_);
}

TEST_F(Cli, LongNamesAndLinksAreWritten) {
  const std::string longest = folder_ / (std::string(245, 'n') + ".json");
  EXPECT_EQ(run_cli({"plan", graph_, "-b", "100%", "-o", longest}).code, 0);
  fs::create_symlink("real.json", folder_ / "link.json");
  EXPECT_EQ(run_cli({"plan", graph_, "-b", "100%", "-o", folder_ / "link.json"}).code, 0);
  EXPECT_TRUE(fs::is_symlink(folder_ / "link.json"));
  EXPECT_EQ(read_file(folder_ / "real.json"), read_file(longest));
}

TEST_F(Cli, HelpThatCannotBeWrittenExitsWith1) {
  for (const char* option : {"--help", "--version"})
    expect_one_line(run_cli({option}, "/dev/full"), 1, "cannot write to standard output");
  expect_one_line(run_cli({"plan", "--help"}, "/dev/full"), 1, "cannot write to standard output");
}

TEST_F(Cli, NumbersAreTakenWholeOrRefused) {
  const std::string see = " (see 'remat plan --help')";
  const std::string seeds = " is not an integer in [0, 18446744073709551615]" + see;
  for (const char* seed : {"-1", "18446744073709551616", "", "1.5", "7x", " 7"}) {
    expect_one_line(run_cli({"plan", graph_, "-b", "9", "--seed", seed}), 64,
                    "--seed: '" + std::string(seed) + "'" + seeds);
  }
  const std::string units = " is not an integer in [0, 9223372036854775807]" + see;
  for (const char* work : {"-1", "9223372036854775808", "", "1e6"}) {
    expect_one_line(run_cli({"plan", graph_, "-b", "9", "--work-limit", work}), 64,
                    "--work-limit: '" + std::string(work) + "'" + units);
  }
  expect_one_line(run_cli({"plan", graph_, "-b", "9", "--threads", "-1"}), 64,
                  "--threads: '-1' is not an integer in [0, 1024]" + see);
  for (const char* time : {"", "inf", "nan", "-1s", "1e400"}) {
    expect_one_line(run_cli({"plan", graph_, "-b", "9", "--time-limit", time}), 64,
                    "time limit '" + std::string(time) + "' is not a time: write 10s, 500ms, 2m or 1h");
  }
  expect_one_line(run_cli({"info", graph_, "--top", "-1"}), 64,
                  "--top: '-1' is not an integer in [0, 1000000000] (see 'remat info --help')");
  expect_one_line(run_cli({"sweep", graph_, "--points", "1001"}), 64,
                  "--points: '1001' is not an integer in [2, 1000] (see 'remat sweep --help')");
  expect_one_line(run_cli({"generate", "random_layered", "--width", "inf", "-o", folder_ / "x"}), 64,
                  "--width: 'inf' is not a number (see 'remat generate random_layered --help')");
  for (const char* command : {"plan", "compare", "convert"}) {
    std::vector<std::string> words{command, graph_, std::string(command) == "compare" ? "--out-dir" : "-o",
                                   ""};
    if (std::string(command) != "convert") words.insert(words.end(), {"-b", "9"});
    const CliRun run = run_cli(words);
    EXPECT_EQ(run.code, 64);
    EXPECT_NE(run.err.find("the name of the file or folder is empty"), std::string::npos) << run.err;
  }
}

TEST_F(Cli, TheLargestSeedIsWrittenAndRead) {
  const std::string plan = folder_ / "plan.json";
  ASSERT_EQ(run_cli({"plan", graph_, "-b", "100%", "--seed", "18446744073709551615", "-o", plan}).code, 0);
  EXPECT_EQ(load_plan(plan).seed, 18446744073709551615u);
}

TEST_F(Cli, OutputThatCannotBeWrittenExitsWith1) {
  expect_one_line(run_cli({"convert", graph_, "-o", "/dev/full"}), 1,
                  "cannot write /dev/full: No space left on device");
  expect_one_line(run_cli({"plan", graph_, "-b", "100%", "-o", "/dev/full"}), 1,
                  "cannot write /dev/full: No space left on device");
  const std::string under = graph_ + "/plan.json", missing = folder_ / "no/plan.json";
  expect_one_line(run_cli({"plan", graph_, "-b", "100%", "-o", under}), 1,
                  "cannot write " + under + ": Not a directory");
  expect_one_line(run_cli({"plan", graph_, "-b", "100%", "-o", missing}), 1,
                  "cannot write " + missing + ": No such file or directory");
  expect_one_line(run_cli({"info", graph_}, "/dev/full"), 1, "cannot write to standard output");
}

/// A graph and budget that keep a planner busy for minutes.
class LongRun : public Cli {
 protected:
  LongRun() {
    Random random(8);
    const testing::RandomShape shape{
        .min_ops = 3000, .max_ops = 3000, .max_values = 4000, .never_recompute = false, .after = false};
    graph = testing::random_graph(random, shape);
    save_graph(graph, graph_);
  }
  static bool has_search() {
    return std::any_of(planners().begin(), planners().end(),
                       [](const auto& p) { return p.name == "search"; });
  }
  std::vector<std::string> command() const {
    return {"plan",         graph_, "-b",     "70%", "--planner",          "search",
            "--time-limit", "120s", "--json", "-o",  folder_ / "plan.json"};
  }
  Graph graph;
};

TEST_F(LongRun, TheFirstInterruptEndsItWithTheBestPlanSoFar) {
  if (!has_search()) GTEST_SKIP() << "no registered planner runs until its time limit";
  testing::RunningCli running(command());
  std::this_thread::sleep_for(std::chrono::seconds(2));
  const auto before = std::chrono::steady_clock::now();
  running.signal(SIGINT);
  const CliRun run = running.wait();
  EXPECT_LT(std::chrono::steady_clock::now() - before, std::chrono::seconds(10));
  ASSERT_TRUE(run.code == 0 || run.code == 3) << run.code << run.err;
  EXPECT_EQ(run.json().at("stopped_by"), "interrupted");
  EXPECT_EQ(fs::exists(folder_ / "plan.json"), run.code == 0);
  if (run.code == 0) {
    EXPECT_EQ(run_cli({"check", graph_, folder_ / "plan.json"}).code, 0);
  }
}

TEST_F(LongRun, AnInterruptedCompareShowsWhatRanAndWhatDidNot) {
  testing::RunningCli running({"compare", graph_, "-b", "70%", "--planners", "keep_all,search,greedy",
                               "--time-limit", "120s", "--json"});
  std::this_thread::sleep_for(std::chrono::seconds(2));
  running.signal(SIGINT);
  const CliRun run = running.wait();
  ASSERT_EQ(run.code, 130) << run.err;
  const auto said = run.json();
  const auto& rows = said.at("planners");
  ASSERT_EQ(rows.size(), 3u);
  EXPECT_EQ(rows[0].at("status"), "unknown");
  EXPECT_EQ(rows[1].at("stopped_by"), "interrupted");
  EXPECT_EQ(rows[2].at("status"), "not run");
  EXPECT_TRUE(rows[2].at("peak").is_null());
  EXPECT_EQ(rows[2].at("note"), "interrupted before its turn");
}

TEST_F(LongRun, AnInterruptedSweepPrintsItsPointsAndSaysSo) {
  testing::RunningCli running({"sweep", graph_, "--points", "4", "--time-limit", "120s", "--json"});
  std::this_thread::sleep_for(std::chrono::seconds(2));
  running.signal(SIGINT);
  const CliRun run = running.wait();
  ASSERT_EQ(run.code, 130) << run.err;
  EXPECT_EQ(run.json().at("stopped_by"), "interrupted");
  EXPECT_GE(run.json().at("points").size(), 1u);
}

TEST_F(Cli, ProgressIsALiveLineOnATerminalOnlyWhereWorkTakesLonger) {
  const std::string hard = folder_ / "hard.json";
  ASSERT_EQ(run_cli({"generate", "random_layered", "--nodes", "300", "-o", hard}).code, 0);
  const std::vector<std::string> arguments{"plan",      hard,     "-b",           "85%",
                                           "--planner", "search", "--time-limit", "0.7s"};
  ::setenv("TERM", "xterm", 1);
  testing::RunningCli on_terminal(arguments, true);
  const CliRun live = on_terminal.wait();
  ASSERT_EQ(live.code, 0) << live.err;
  EXPECT_NE(live.err.find("\rsearch  overhead "), std::string::npos) << live.err;
  EXPECT_NE(live.err.find("  peak "), std::string::npos) << live.err;
  EXPECT_NE(live.err.find(" s left"), std::string::npos) << live.err;
  EXPECT_TRUE(live.err.ends_with("  \r")) << "the line goes when the planner is done";
  EXPECT_EQ(live.err.find('\033'), std::string::npos) << "no escape is needed";
  EXPECT_EQ(run_cli(arguments).err, "");
}

}  // namespace
}  // namespace remat
