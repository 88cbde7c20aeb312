// `remat layout` and `remat check` of what it writes.
#include <gtest/gtest.h>
#include <signal.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <thread>

#include "cli/run_cli.h"
#include "helpers/graphs.h"
#include "remat/io.h"

namespace remat {
namespace {

namespace fs = std::filesystem;
using testing::CliRun;
using testing::run_cli;

void write(const std::string& path, const std::string& text) { std::ofstream(path) << text; }

std::string read(const std::string& path) {
  std::stringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

/// Three buffers of which two live at once, and columns that `layout` ignores.
constexpr const char* kTable =
    "name,id,lower,upper,size\n"
    "\"a, b\",0,0,2,4\n"
    "c,1,1,3,4\n"
    "d,2,2,4,4\n";

class CliLayout : public ::testing::Test {
 protected:
  CliLayout() {
    save_graph(testing::training_chain(12), graph_);
    write(table_, kTable);
    run_cli({"plan", graph_, "-b", "8", "-o", plan_});
  }
  void expect_error(const std::vector<std::string>& arguments, int code, const std::string& line) const {
    const CliRun run = run_cli(arguments);
    EXPECT_EQ(run.code, code);
    EXPECT_EQ(run.err, "remat: " + line + "\n");
  }
  const testing::TemporaryFolder folder_;
  const std::string graph_ = folder_ / "chain.json", plan_ = folder_ / "plan.json",
                    layout_ = folder_ / "layout.json", table_ = folder_ / "table.csv",
                    out_ = folder_ / "out.csv";
};

TEST_F(CliLayout, OfAPlanIsWrittenAndChecks) {
  const CliRun run = run_cli({"layout", graph_, plan_, "--align", "1", "--json", "-o", layout_});
  ASSERT_EQ(run.code, 0) << run.err;
  const auto said = run.json();
  EXPECT_EQ(said.at("status"), "optimal");
  EXPECT_EQ(said.at("arena"), said.at("peak"));
  EXPECT_EQ(said.at("live_peak"), said.at("peak"));
  EXPECT_EQ(said.at("arena_lower_bound"), said.at("peak"));
  EXPECT_EQ(said.at("layout_file"), layout_);
  const CliRun check = run_cli({"check", graph_, plan_, layout_, "--budget", "8", "--json"});
  EXPECT_EQ(check.code, 0) << check.err;
  EXPECT_EQ(check.json().at("valid"), true);
  EXPECT_EQ(check.json().at("arena"), said.at("arena"));
}

TEST_F(CliLayout, OfAPlanIsAlignedTo64BytesUnlessToldOtherwise) {
  const auto said = run_cli({"layout", graph_, plan_, "--json"}).json();
  EXPECT_EQ(said.at("alignment"), 64);
  EXPECT_EQ(said.at("arena").get<int>() % 64, 0);
  EXPECT_EQ(said.at("arena"), said.at("live_peak"));
  EXPECT_GT(said.at("arena"), said.at("peak"));
}

TEST_F(CliLayout, ThatWasTamperedWithFailsItsCheck) {
  ASSERT_EQ(run_cli({"layout", graph_, plan_, "--align", "1", "-o", layout_}).code, 0);
  std::string text = read(layout_);
  const std::size_t at = text.find("\"offset\":1}");
  ASSERT_NE(at, std::string::npos) << text;
  write(layout_, text.replace(at, 11, "\"offset\":0}"));
  const CliRun check = run_cli({"check", graph_, plan_, layout_});
  EXPECT_EQ(check.code, 1);
  EXPECT_EQ(check.value("valid"), "false");
  EXPECT_NE(check.err.find("rule disjoint: buffer "), std::string::npos) << check.err;
  EXPECT_EQ(std::count(check.err.begin(), check.err.end(), '\n'), 1);
}

TEST_F(CliLayout, OfAnotherPlanFailsItsCheck) {
  ASSERT_EQ(run_cli({"layout", graph_, plan_, "-o", layout_}).code, 0);
  ASSERT_EQ(run_cli({"plan", graph_, "-b", "100%", "-o", plan_}).code, 0);
  const CliRun check = run_cli({"check", graph_, plan_, layout_});
  EXPECT_EQ(check.code, 1);
  EXPECT_TRUE(check.err.starts_with("remat: " + layout_ + ": value ")) << check.err;
}

TEST_F(CliLayout, AboveTheBudgetFailsItsCheck) {
  ASSERT_EQ(run_cli({"layout", graph_, plan_, "-o", layout_}).code, 0);
  const CliRun check = run_cli({"check", graph_, plan_, layout_, "--budget", "8"});
  EXPECT_EQ(check.code, 1);
  EXPECT_NE(check.err.find("is above the budget of 8 bytes"), std::string::npos) << check.err;
}

TEST_F(CliLayout, OfATableKeepsItsColumnsAndChecks) {
  const CliRun run = run_cli({"layout", table_, "--capacity", "8", "-o", out_});
  ASSERT_EQ(run.code, 0) << run.err;
  EXPECT_EQ(run.value("arena"), "8");
  const std::string text = read(out_);
  EXPECT_TRUE(text.starts_with("name,id,lower,upper,size,offset\n\"a, b\",0,0,2,4,")) << text;
  EXPECT_EQ(run_cli({"check", out_, "--capacity", "8"}).code, 0);
  // What was written can be laid out again: the column is replaced.
  ASSERT_EQ(run_cli({"layout", out_, "-o", layout_}).code, 0);
  EXPECT_EQ(read(layout_), text);
}

TEST_F(CliLayout, OfAGeneratedTableChecks) {
  const CliRun made = run_cli({"generate", "buffers", "--count", "500", "--seed", "3", "-o", table_});
  ASSERT_EQ(made.code, 0) << made.err;
  EXPECT_NE(made.out.find("\nbuffers = 500\nlive_peak = "), std::string::npos) << made.out;
  const CliRun laid = run_cli({"layout", table_, "-o", out_});
  ASSERT_EQ(laid.code, 0) << laid.err;
  const std::string live_peak = made.out.substr(made.out.find("live_peak = "));
  EXPECT_NE(laid.out.find(live_peak), std::string::npos) << laid.out << live_peak;
  EXPECT_EQ(run_cli({"check", out_}).code, 0);
  expect_error({"generate", "buffers", "--count", "0", "-o", table_}, 64,
               "count = 0 is outside [1, 1073741824]");
}

TEST_F(CliLayout, ThatIsProvedImpossibleExitsWith2AndWritesNothing) {
  expect_error(
      {"layout", table_, "--capacity", "7", "-o", out_}, 2,
      "proved infeasible: no layout fits into 7 bytes, the bound 'live_peak' is 8 bytes; the best arena "
      "found is 8 bytes; " +
          out_ + " is not written");
  EXPECT_FALSE(fs::exists(out_));
  const CliRun plan = run_cli({"layout", graph_, plan_, "--capacity", "3", "-o", layout_});
  EXPECT_EQ(plan.code, 2);
  EXPECT_FALSE(fs::exists(layout_));
}

/// A table whose best layout needs search: pieces of a full strip.
std::string hard_table() {
  Random random(4);
  std::string text = "id,lower,upper,size\n";
  std::vector<std::pair<int, std::int64_t>> living;
  int id = 0;
  for (int at = 0; at < 400; ++at) {
    std::int64_t free = 1000;
    std::erase_if(living, [&](const auto& buffer) { return buffer.first <= at; });
    for (const auto& [end, size] : living) free -= size;
    while (free > 0) {
      const std::int64_t size = std::min(free, random.between(1, 300));
      const int end = at + static_cast<int>(random.between(1, random.chance(0.3) ? 20 : 4));
      living.emplace_back(end, size);
      free -= size;
      text += std::to_string(id++) + "," + std::to_string(at) + "," + std::to_string(end) + "," +
              std::to_string(size) + "\n";
    }
  }
  return text;
}

TEST_F(CliLayout, ThatIsNotFoundWithinTheLimitsExitsWith3) {
  write(table_, hard_table());
  const CliRun run = run_cli({"layout", table_, "--capacity", "1000", "--work-limit", "1", "-o", out_});
  EXPECT_EQ(run.code, 3);
  EXPECT_EQ(run.value("status"), "unknown");
  EXPECT_EQ(run.value("stopped_by"), "work");
  EXPECT_EQ(run.value("arena"), "-");
  EXPECT_TRUE(run.err.starts_with(
      "remat: no layout within 0.977 KiB (1000 bytes) found, nothing proved; the best arena found is "))
      << run.err;
  EXPECT_FALSE(fs::exists(out_));
}

TEST_F(CliLayout, IsAnytimeCtrlCReturnsTheBest) {
  write(table_, hard_table());
  testing::RunningCli remat({"layout", table_, "--time-limit", "1h", "-o", out_});
  std::this_thread::sleep_for(std::chrono::milliseconds(700));
  remat.signal(SIGINT);
  const CliRun run = remat.wait();
  EXPECT_EQ(run.code, 0) << run.err;
  if (run.value("status") != "optimal") {
    EXPECT_EQ(run.value("stopped_by"), "interrupted");
  }
  EXPECT_EQ(run_cli({"check", out_}).code, 0);
}

TEST_F(CliLayout, ErrorsNameFileLineAndBothNumbers) {
  const auto expect_fault = [&](const std::string& text, const std::string& fault) {
    write(table_, text);
    expect_error({"layout", table_, "-o", out_}, 1, table_ + fault);
    EXPECT_FALSE(fs::exists(out_));
  };
  expect_fault("id,lower,upper\n", ":1: the column 'size' is missing");
  expect_fault("id,lower,upper,size,size\n", ":1: the column 'size' appears twice");
  expect_fault("", ":1: is empty; its first line must name the columns id, lower, upper and size");
  expect_fault("id,lower,upper,size\n0,1,2,3\n1,5,5,1\n", ":3: upper 5 is not above lower 5");
  expect_fault("id,lower,upper,size\n0,1,2\n", ":2: 3 fields, but the first line names 4 columns");
  expect_fault("id,lower,upper,size\n\"0,1,2,3\n", ":2: a double quote is not closed");
  expect_fault("id,lower,upper,size\n0,1,2,1.5\n", ":2: size '1.5' is not an integer of 64 bits");
  expect_fault("id,lower,upper,size\n0,1,2,-3\n", ":2: size -3 is outside [0, 4611686018427387904)");
  expect_fault("id,lower,upper,size\n0,0,1,4000000000000000000\n1,0,1,4000000000000000000\n",
               ": buffer 1: the sizes up to here, rounded up to the alignment, sum up to 2^62 bytes or more");
  expect_error({"layout", graph_}, 1,
               graph_ + ":1: is JSON, not a table of buffers; a graph needs a plan beside it");
  write(table_, kTable);
  expect_error({"layout", table_, "--capacity", "50%"}, 64,
               "a capacity in percent needs a graph and its plan");
  expect_error({"check", table_}, 1, table_ + ":1: the column 'offset' is missing");
  expect_error({"check", table_, "--budget", "8"}, 64,
               "--budget is for a plan; a table of buffers has a --capacity");
}

TEST_F(CliLayout, APlanWithABudgetOnItsArenaIsWrittenWithItsLayout) {
  const CliRun run = run_cli({"plan", graph_, "-b", "8", "--budget-on", "arena", "--align", "1", "--json",
                              "-o", plan_, "--layout", layout_});
  ASSERT_EQ(run.code, 0) << run.err;
  EXPECT_LE(run.json().at("arena").get<int>(), 8);
  EXPECT_EQ(run.json().at("layout_file"), layout_);
  EXPECT_EQ(run_cli({"check", graph_, plan_, layout_, "--budget", "8"}).code, 0);
  const CliRun wide = run_cli({"plan", graph_, "-b", "8", "--budget-on", "arena", "-o", out_});
  EXPECT_EQ(wide.code, 2) << "with offsets of 64 bytes no two buffers fit";
  EXPECT_FALSE(fs::exists(out_));
  expect_error({"plan", graph_, "--budget-on", "arena", "--objective", "peak"}, 64,
               "--budget-on arena goes with --objective time only");
}

TEST_F(CliLayout, APlanSaysWhatItsArenaNeedsBesideThePeak) {
  const auto said = run_cli({"plan", graph_, "-b", "8", "--align", "1", "--json"}).json();
  EXPECT_EQ(said.at("budget_on"), "peak");
  EXPECT_GE(said.at("arena"), said.at("peak"));
}

}  // namespace
}  // namespace remat
