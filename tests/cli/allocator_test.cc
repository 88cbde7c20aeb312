// --allocator and --budget-on reserved, through the real binary.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>

#include "cli/run_cli.h"
#include "helpers/graphs.h"
#include "remat/io.h"
#include "remat/keep_all.h"

namespace remat {
namespace {

using testing::CliRun;
using testing::run_cli;

/// A training chain of 12 layers of 7 MiB: two in a segment of 20 MiB.
class AllocatorCli : public ::testing::Test {
 protected:
  AllocatorCli() {
    const Graph graph = testing::training_chain(12, 7 << 20, 10);
    save_graph(graph, graph_);
    keep_all_ = keep_all_peak(graph).count();
  }
  void expect_error(const std::vector<std::string>& arguments, const std::string& line) const {
    const CliRun run = run_cli(arguments);
    EXPECT_EQ(run.code, 64);
    EXPECT_TRUE(run.err.starts_with("remat: " + line)) << run.err;
    EXPECT_EQ(std::count(run.err.begin(), run.err.end(), '\n'), 1);
  }
  const testing::TemporaryFolder folder_;
  const std::string graph_ = folder_ / "chain.json", out_ = folder_ / "plan.json";
  std::int64_t keep_all_ = 0;
};

TEST_F(AllocatorCli, InfoSaysWhatKeepAllTakes) {
  const auto said = run_cli({"info", graph_, "--json", "--allocator", "cuda"}).json();
  EXPECT_EQ(said.at("allocator"), "cuda");
  EXPECT_EQ(said.at("allocated_peak"), keep_all_);
  EXPECT_EQ(said.at("reserved_peak").get<std::int64_t>() % (20 << 20), 0);
  EXPECT_GT(said.at("reserved_peak"), said.at("allocated_peak"));
  EXPECT_FALSE(run_cli({"info", graph_, "--json"}).json().contains("allocator"));
  EXPECT_EQ(run_cli({"info", graph_, "--allocator", "exact"}).value("reserved_peak"),
            std::to_string(keep_all_));
}

TEST_F(AllocatorCli, APlanSaysWhatItTakes) {
  const auto said = run_cli({"plan", graph_, "-b", "70%", "--json", "--allocator", "cuda-expandable"}).json();
  EXPECT_EQ(said.at("budget_on"), "peak");
  EXPECT_EQ(said.at("allocator"), "cuda-expandable");
  EXPECT_GE(said.at("allocated_peak"), said.at("peak"));
  EXPECT_GE(said.at("reserved_peak"), said.at("allocated_peak"));
  EXPECT_FALSE(run_cli({"plan", graph_, "-b", "70%", "--json"}).json().contains("reserved_peak"));
}

TEST_F(AllocatorCli, APlanWithABudgetOnReservedBytesKeepsIt) {
  const std::string budget = std::to_string(140 << 20);
  for (const char* allocator : {"cuda", "cuda-expandable", "cuda:large_segment_size_mb:28"}) {
    const auto run = run_cli({"plan", graph_, "-b", budget, "--budget-on", "reserved", "--allocator",
                              allocator, "--work-limit", "200000", "--json", "-o", out_});
    ASSERT_EQ(run.code, 0) << run.err;
    EXPECT_EQ(run.json().at("budget_on"), "reserved");
    EXPECT_EQ(run.json().at("allocator"), allocator);
    EXPECT_LE(run.json().at("reserved_peak"), 140 << 20);
    EXPECT_EQ(run_cli({"check", graph_, out_, "--budget", budget}).code, 0);
  }
  const auto standard = run_cli({"plan", graph_, "-b", budget, "--budget-on", "reserved", "--json"}).json();
  EXPECT_EQ(standard.at("allocator"), "cuda");
}

TEST_F(AllocatorCli, ABudgetThatIsNotKeptSaysTheLeastThatIsReserved) {
  const CliRun run = run_cli({"plan", graph_, "-b", std::to_string((20 << 20) + 1), "--budget-on", "reserved",
                              "--planner", "keep_all", "-o", out_});
  EXPECT_EQ(run.code, 2);
  EXPECT_FALSE(std::filesystem::exists(out_));
  const CliRun none = run_cli({"plan", graph_, "-b", "100%", "--budget-on", "reserved", "--planner",
                               "keep_all", "--json", "-o", out_});
  EXPECT_EQ(none.code, 3);
  EXPECT_EQ(none.json().at("status"), "unknown");
  EXPECT_TRUE(none.json().at("reserved_peak").is_null());
  EXPECT_GT(none.json().at("best_reserved"), keep_all_);
  EXPECT_NE(none.err.find("found, nothing proved; the best peak found is "), std::string::npos) << none.err;
  EXPECT_NE(none.err.find(", the least that is reserved "), std::string::npos) << none.err;
}

TEST_F(AllocatorCli, AReportSaysWhatItsPlansTake) {
  ASSERT_EQ(run_cli({"plan", graph_, "-b", "70%", "-o", out_}).code, 0);
  const std::string report = folder_ / "report.json";
  ASSERT_EQ(run_cli({"report", graph_, out_, "--format", "json", "--points", "0", "--allocator", "cuda", "-o",
                     report})
                .code,
            0);
  const auto plans = nlohmann::json::parse(std::ifstream(report)).at("plans");
  EXPECT_EQ(plans.at(1).at("allocator").at("name"), "cuda");
  EXPECT_EQ(plans.at(1).at("allocator").at("allocated"), keep_all_);
  EXPECT_LT(plans.at(0).at("allocator").at("reserved"), plans.at(1).at("allocator").at("reserved"));
}

TEST_F(AllocatorCli, ErrorsAreOneLine) {
  expect_error({"info", graph_, "--allocator", "tpu"},
               "allocator 'tpu' is not cuda, cuda-expandable or exact");
  expect_error({"plan", graph_, "-b", "9GiB", "--allocator", "cuda:a:b"},
               "--allocator cuda:a:b: allocator 'cuda:a:b' has an unknown option 'a'");
  expect_error({"plan", graph_, "--budget-on", "reserved", "--objective", "peak"},
               "--budget-on reserved goes with --objective time only");
  expect_error({"plan", graph_, "-b", "9GiB", "--budget-on", "reserved", "--host", "1GB/s"},
               "--budget-on reserved and --host do not go together");
  expect_error({"report", graph_, "--format", "csv", "--allocator", "cuda", "-o", out_},
               "--allocator goes with the formats html and json");
}

}  // namespace
}  // namespace remat
