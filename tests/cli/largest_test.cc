// `remat largest`, through the real binary.
#include <gtest/gtest.h>

#include "cli/run_cli.h"
#include "remat/bounds.h"
#include "remat/io.h"

namespace remat {
namespace {

using testing::CliRun;
using testing::run_cli;

const std::vector<std::string> kSmall{"largest",      "gpt",   "--depth",      "2",   "--width",    "64",
                                      "--heads",      "2",     "--vocabulary", "128", "--sequence", "32",
                                      "--work-limit", "500000"};

CliRun largest(std::vector<std::string> more) {
  std::vector<std::string> all = kSmall;
  all.insert(all.end(), more.begin(), more.end());
  return run_cli(all);
}

TEST(CliLargest, PrintsTheAnswerItsProofAndATable) {
  const testing::TemporaryFolder folder;
  const std::string graph = folder / "largest.json";
  const CliRun run = largest({"--budget", "4MiB", "--json", "-o", graph});
  ASSERT_EQ(run.code, 0) << run.err;
  const auto said = run.json();
  const int found = said.at("largest").get<int>(), impossible = said.at("impossible").get<int>();
  EXPECT_GT(found, 1);
  EXPECT_EQ(said.at("proved").get<bool>(), impossible == found + 1);
  const auto& rows = said.at("sizes");
  EXPECT_EQ(rows.back().at("status"), impossible == found + 1 ? "infeasible" : "unknown");
  EXPECT_EQ(rows.at(rows.size() - 2).at("batch"), found);
  EXPECT_LE(rows.at(rows.size() - 2).at("peak").get<int>(), 4 << 20);
  EXPECT_LE(floor_bound(load_graph(graph).graph).peak, Bytes(4 << 20));
  EXPECT_EQ(run_cli({"plan", graph, "--budget", "4MiB", "--time-limit", "5s"}).code, 0);
  const CliRun table = largest({"--budget", "4MiB"});
  EXPECT_EQ(table.value("largest"), std::to_string(found));
  EXPECT_NE(table.out.find("throughput"), std::string::npos);
}

TEST(CliLargest, LooksForALengthToo) {
  const CliRun run = largest({"--budget", "4MiB", "--over", "sequence", "--multiple", "8", "--json"});
  ASSERT_EQ(run.code, 0) << run.err;
  EXPECT_EQ(run.json().at("largest").get<int>() % 8, 0);
  EXPECT_EQ(run.json().at("sizes").front().at("sequence"), 8);
}

TEST(CliLargest, ExitsAsAllCommandsDo) {
  const CliRun none = largest({"--budget", "1000"});
  EXPECT_EQ(none.code, 2);
  EXPECT_EQ(
      none.err.rfind("remat: proved infeasible: no plan of batch 1 fits into 0.977 KiB (1000 bytes)", 0), 0U)
      << none.err;
  EXPECT_EQ(none.value("largest"), "-");
  EXPECT_EQ(largest({"--budget", "60%"}).code, 64);
  EXPECT_EQ(largest({"--budget", "4MiB", "--over", "resolution"}).code, 64);
  EXPECT_EQ(largest({"--budget", "4MiB", "--least", "9", "--most", "8"}).code, 64);
  EXPECT_EQ(run_cli({"largest"}).code, 64);
  EXPECT_EQ(run_cli({"largest", "nothing"}).code, 64);
}

}  // namespace
}  // namespace remat
