// Typing errors, two arguments that name one file, `-`, terminals with few features.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <sstream>

#include "cli/run_cli.h"
#include "helpers/graphs.h"
#include "remat/io.h"
#include "remat/layout_io.h"

namespace remat {
namespace {

namespace fs = std::filesystem;
using testing::CliRun;
using testing::run_cli;

class CliUsage : public ::testing::Test {
 protected:
  CliUsage() { save_graph(testing::training_chain(12), graph_); }
  void expect_usage(const std::vector<std::string>& arguments, const std::string& line) const {
    const CliRun run = run_cli(arguments);
    EXPECT_EQ(run.code, 64) << line;
    EXPECT_EQ(run.err, "remat: " + line + "\n");
    EXPECT_EQ(run.out, "");
  }
  /// With a file at standard input.
  CliRun run_with(const std::string& input, const std::vector<std::string>& arguments) const {
    return run_cli(arguments, "", [input] { ::dup2(::open(input.c_str(), O_RDONLY), STDIN_FILENO); });
  }
  const testing::TemporaryFolder folder_;
  const std::string graph_ = folder_ / "chain.json";
};

TEST_F(CliUsage, TwoOutputsThatAreOneFileAreRefused) {
  const std::string plan = folder_ / "plan.json", link = folder_ / "link.json", hard = folder_ / "hard.json";
  const std::vector<std::string> asked{"plan", graph_, "-b", "100%", "-o", plan, "--layout"};
  const auto with = [&](const std::string& layout) {
    std::vector<std::string> words = asked;
    words.push_back(layout);
    return words;
  };
  expect_usage(with(plan), "-o and --layout are one file: " + plan);
  const std::string roundabout = (folder_.path() / "." / "plan.json").string();
  expect_usage(with(roundabout), "-o and --layout are one file: " + plan + ", " + roundabout);
  expect_usage({"plan", graph_, "-b", "100%", "-o", "not-there", "--layout", "./not-there"},
               "-o and --layout are one file: not-there, ./not-there");
  fs::create_symlink("plan.json", link);
  expect_usage(with(link), "-o and --layout are one file: " + plan + ", " + link);
  EXPECT_FALSE(fs::exists(plan));
  ASSERT_EQ(run_cli({"plan", graph_, "-b", "100%", "-o", plan}).code, 0);
  fs::create_hard_link(plan, hard);
  expect_usage(with(hard), "-o and --layout are one file: " + plan + ", " + hard);
  EXPECT_EQ(run_cli({"plan", graph_, "-b", "100%", "-o", "/dev/null", "--layout", "/dev/null"}).code, 0);
  EXPECT_EQ(run_cli(with(folder_ / "other.json")).code, 0);
}

TEST_F(CliUsage, PlansOfTwoPlannersOrBudgetsAreNeverOneFile) {
  const std::string plans = folder_ / "plans";
  fs::create_directory(plans);
  fs::create_symlink("auto.json", plans + "/keep_all.json");
  expect_usage(
      {"compare", graph_, "-b", "100%", "--planners", "keep_all,auto", "--out-dir", plans},
      "auto.json and keep_all.json are one file: " + plans + "/auto.json, " + plans + "/keep_all.json");
  fs::create_symlink("13.json", plans + "/12.json");
  expect_usage({"sweep", graph_, "--out-dir", plans},
               "12.json and 13.json are one file: " + plans + "/12.json, " + plans + "/13.json");
}

TEST_F(CliUsage, OptionsWithoutAValueOrGivenTwiceAreNamed) {
  expect_usage({"plan", graph_, "-b", "9%", "-b", "8%"},
               "--budget is given more than once (see 'remat plan --help')");
  expect_usage({"plan", graph_, "-b"}, "--budget needs a value (see 'remat plan --help')");
  expect_usage({"plan", "", "-b", "9%"}, "the name of the file to read is empty");
  expect_usage({"plan", graph_, "-b", "100%", "--objective", "tine"},
               "--objective: 'tine' is none of time, peak: did you mean 'time'? (see 'remat plan --help')");
}

TEST_F(CliUsage, SlipsAreAnsweredWithWhatWasProbablyMeant) {
  expect_usage({"plan", graph_, "--bugdet", "9"},
               "unknown option '--bugdet': did you mean '--budget'? (see 'remat plan --help')");
  expect_usage({"compare", graph_, "--bugdet=9"},
               "unknown option '--bugdet': did you mean '--budget'? (see 'remat compare --help')");
  expect_usage({"plan", graph_, "-b", "9", "--quiet"}, "unknown option '--quiet' (see 'remat plan --help')");
  expect_usage({"plan", graph_, "-b", "60", "%"},
               "The following argument was not expected: %: did you mean '60%'? (see 'remat plan --help')");
  expect_usage(
      {"plan", graph_, "-b", "6", "GiB"},
      "The following argument was not expected: GiB: did you mean '6GiB'? (see 'remat plan --help')");
  expect_usage({"plan", graph_, "-b", "6G"}, "budget '6G' is not an amount of memory: did you mean '6GiB'?");
  const auto begins = [](const std::vector<std::string>& arguments, const std::string& line) {
    const CliRun run = run_cli(arguments);
    EXPECT_EQ(run.code, 64);
    EXPECT_TRUE(run.err.starts_with("remat: " + line)) << run.err;
    EXPECT_EQ(std::ranges::count(run.err, '\n'), 1);
  };
  begins({"plan", graph_, "-b", "9", "--planner", "ato"},
         "unknown planner 'ato': did you mean 'auto'? known: auto, ");
  begins({"plan", graph_, "-b", "9", "--set", "lns_ops_=1"},
         "planner auto has no option 'lns_ops_': did you mean 'lns_ops'? it has: ");
  begins({"generate", "gtp", "-o", folder_ / "x"},
         "unknown kind of graph 'gtp': did you mean 'gpt'? known: ");
  begins({"largest", "gtp", "-b", "9GiB"}, "unknown model 'gtp': did you mean 'gpt'? known: ");
  begins({"largest"}, "largest needs a model: ");
  begins({"plan", graph_, "-b", "9", "--host", "25"}, "bandwidth '25' has no unit: write 25GB/s, ");
}

TEST_F(CliUsage, PlanningEndsAtAGapThatIsSaid) {
  const std::string gpt = folder_ / "gpt.json";
  ASSERT_EQ(run_cli({"generate", "gpt", "--depth", "8", "--durations", "roofline", "-o", gpt}).code, 0);
  const std::vector<std::string> asked{"plan",         gpt,       "-b",     "80%",
                                       "--work-limit", "3000000", "--json", "--gap"};
  const auto with = [&](const std::string& gap) {
    std::vector<std::string> words = asked;
    words.push_back(gap);
    return run_cli(words).json();
  };
  const auto wide = with("5%"), none = with("0");
  EXPECT_EQ(wide.at("stopped_by"), "gap");
  EXPECT_EQ(wide.at("gap_limit"), 0.05);
  EXPECT_LE(wide.at("gap"), 0.05);
  EXPECT_GT(wide.at("gap"), 0);
  EXPECT_EQ(none.at("gap_limit"), 0);
  EXPECT_NE(none.at("stopped_by"), "gap");
  EXPECT_LE(none.at("duration"), wide.at("duration"));
  EXPECT_EQ(run_cli({"plan", graph_, "-b", "100%"}).value("gap_limit"), "0.0001");
  EXPECT_EQ(run_cli({"compare", graph_, "-b", "100%", "--planners", "keep_all"}).value("gap_limit"),
            "0.0001");
}

TEST_F(CliUsage, EdgesArePairsOfOpsWhereverTheyAreCounted) {
  const std::string dag = folder_ / "dag.json";
  const CliRun made = run_cli({"generate", "random_dag", "--nodes", "30", "-o", dag});
  const CliRun info = run_cli({"info", dag});
  EXPECT_EQ(made.value("edges"), info.value("edges"));
  const Graph graph = load_graph(dag).graph;
  EXPECT_EQ(info.value("reads"), std::to_string(graph.inputs.entries()));
  EXPECT_NE(info.value("reads"), info.value("edges"));
}

TEST_F(CliUsage, AMinusIsStandardInputAndOutput) {
  const std::string plan = folder_ / "plan.json";
  const CliRun made = run_with(graph_, {"plan", "-", "-b", "6", "--work-limit", "1000", "-o", "-"});
  ASSERT_EQ(made.code, 0) << made.err;
  EXPECT_EQ(parse_plan(made.out, "output").budget, Bytes(6));
  EXPECT_NE(made.err.find("plan_file = -\n"), std::string::npos) << "reports go to standard error";
  write_file(plan, made.out);
  EXPECT_EQ(run_with(plan, {"check", graph_, "-"}).value("valid"), "true");
  EXPECT_EQ(run_with(graph_, {"info", "-"}).out, run_cli({"info", graph_}).out);
  const CliRun converted = run_with(graph_, {"convert", "-", "-o", "-"});
  EXPECT_EQ(converted.out, read_file(graph_));
  const CliRun laid_out = run_with(plan, {"layout", graph_, "-", "-o", "-"});
  EXPECT_GT(parse_layout(laid_out.out, "output").buffers.size(), 0u) << laid_out.err;
  const CliRun generated = run_cli({"generate", "chain", "--length", "3", "-o", "-"});
  EXPECT_EQ(parse_graph(generated.out, "output").graph.num_ops(), 7) << generated.err;
  const CliRun bad = run_with(plan, {"info", "-"});
  EXPECT_EQ(bad.code, 1);
  EXPECT_TRUE(bad.err.starts_with("remat: standard input")) << bad.err;
  EXPECT_EQ(run_with(graph_, {"check", "-", "-"}).err, "remat: only one file can come from standard input\n");
  expect_usage({"plan", graph_, "-b", "9", "-o", "-", "--layout", "-"},
               "-o and --layout are one file: standard output");
  EXPECT_EQ(
      run_cli({"generate", "chain", "-o", "-"}, "/dev/full").err.find("remat: cannot write to standard"),
      run_cli({"generate", "chain", "-o", "-"}, "/dev/full").err.rfind("remat: "));
  EXPECT_FALSE(fs::exists("-"));
}

TEST_F(CliUsage, NarrowTablesKeepWhatTheirRowsAreAbout) {
  const std::string gpt = folder_ / "gpt.json";
  ASSERT_EQ(run_cli({"generate", "gpt", "--depth", "8", "--durations", "roofline", "-o", gpt}).code, 0);
  const auto narrow = [](const std::vector<std::string>& arguments) {
    return run_cli(arguments, "", [] { ::setenv("REMAT_COLUMNS", "40", 1); });
  };
  const CliRun info = narrow({"info", gpt});
  std::istringstream lines(info.out.substr(info.out.find("\n\n")));
  for (std::string line; std::getline(lines, line);) EXPECT_LE(line.size(), 40) << line;
  for (const char* label : {"log_softmax_grad", "(resident inputs)", "layers.0.fc1", "attention_grad"}) {
    EXPECT_NE(info.out.find(label), std::string::npos) << label << " is missing in\n" << info.out;
  }
  const CliRun compared =
      narrow({"compare", gpt, "-b", "80%", "--planners", "auto,checkmate_milp", "--work-limit", "10"});
  EXPECT_NE(compared.out.find("auto"), std::string::npos) << compared.out;
  EXPECT_NE(compared.out.find("checkmate_milp"), std::string::npos) << compared.out;
}

TEST_F(CliUsage, ADumbTerminalGetsNoLineThatMoves) {
  const std::string hard = folder_ / "hard.json";
  ASSERT_EQ(run_cli({"generate", "random_layered", "--nodes", "300", "-o", hard}).code, 0);
  const std::vector<std::string> arguments{"compare",         hard,           "-b",  "85%", "--planners",
                                           "search,keep_all", "--time-limit", "0.4s"};
  const char* before = ::getenv("TERM");
  const std::string kept = before ? before : "";
  ::setenv("TERM", "dumb", 1);
  testing::RunningCli on_terminal(arguments, true);
  const CliRun run = on_terminal.wait();
  before ? ::setenv("TERM", kept.c_str(), 1) : ::unsetenv("TERM");
  EXPECT_EQ(run.err, "remat: 2 planners, at most 400 ms each, 800 ms in all\r\n");
}

TEST_F(CliUsage, CompletionOffersWhatTheParserKnows) {
  for (const char* shell : {"bash", "zsh", "fish"}) {
    const CliRun run = run_cli({"completion", shell});
    EXPECT_EQ(run.code, 0);
    for (const char* word : {"plan", "budget-on", "random_layered", "reserved", "checkmate_milp", "fish"}) {
      EXPECT_NE(run.out.find(word), std::string::npos) << word << " in " << shell;
    }
  }
  expect_usage(
      {"completion", "csh"},
      "SHELL: 'csh' is none of bash, zsh, fish: did you mean 'zsh'? (see 'remat completion --help')");
}

/// The completions that bash offers for the last word of a line.
std::string offered(const std::string& script, const std::vector<std::string>& words) {
  std::string line = ". " + script + "; COMP_WORDS=(remat";
  for (const std::string& word : words) line += " '" + word + "'";
  line += "); COMP_CWORD=" + std::to_string(words.size()) + "; _remat; echo \"${COMPREPLY[*]}\"";
  FILE* pipe = ::popen(("bash -c '" +
                        [&] {
                          std::string quoted;
                          for (char c : line) quoted += c == '\'' ? "'\\''" : std::string(1, c);
                          return quoted;
                        }() +
                        "'")
                           .c_str(),
                       "r");
  std::string said;
  for (int c = ::fgetc(pipe); c != EOF; c = ::fgetc(pipe)) said += static_cast<char>(c);
  EXPECT_EQ(::pclose(pipe), 0) << said;
  return said.substr(0, said.find_last_not_of('\n') + 1);
}

TEST_F(CliUsage, BashCompletes) {
  if (::system("command -v bash >/dev/null") != 0) GTEST_SKIP() << "there is no bash";
  const std::string script = folder_ / "remat.bash";
  write_file(script, run_cli({"completion", "bash"}).out);
  EXPECT_EQ(offered(script, {"pla"}), "plan planners");
  EXPECT_EQ(offered(script, {"plan", "g.json", "--budg"}), "--budget --budget-on");
  EXPECT_EQ(offered(script, {"plan", "g.json", "--order", ""}), "fixed free");
  EXPECT_EQ(offered(script, {"plan", "--planner", "checkmate_m"}), "checkmate_milp");
  EXPECT_EQ(offered(script, {"generate", "gp"}), "gpt");
  EXPECT_EQ(offered(script, {"generate", "gpt", "--optimizer", "a"}), "adam");
  EXPECT_EQ(offered(script, {"completion", ""}), "bash zsh fish");
  EXPECT_EQ(offered(script, {"plan", folder_ / "chai"}), graph_);
  save_graph(testing::training_chain(2), folder_ / "two words.json");
  EXPECT_EQ(offered(script, {"plan", folder_ / "two"}), folder_ / "two words.json");
}

}  // namespace
}  // namespace remat
