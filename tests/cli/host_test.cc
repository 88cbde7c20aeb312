// --host of compare, sweep and info, through the real binary.
#include <gtest/gtest.h>

#include <filesystem>

#include "cli/run_cli.h"
#include "helpers/graphs.h"
#include "remat/io.h"

namespace remat {
namespace {

using testing::run_cli;

/// A training chain of 16 layers of 1000 bytes, 10 us each: 100 MB/s copy one in the time of an op.
class HostCli : public ::testing::Test {
 protected:
  HostCli() {
    Graph graph = testing::training_chain(16, 1000, 10);
    graph.time_unit = "us";
    save_graph(graph, graph_);
  }
  const testing::TemporaryFolder folder_;
  const std::string graph_ = folder_ / "chain.json";
};

TEST_F(HostCli, CompareTimesCopiesAndRunsThePlannersThatNeedAHost) {
  const auto rows = [&](const std::vector<std::string>& more) {
    std::vector<std::string> command{"compare", graph_,         "-b",
                                     "50%",     "--work-limit", "3000",
                                     "--json",  "--planners",   "auto,retention,offload_only,offload_all"};
    command.insert(command.end(), more.begin(), more.end());
    return run_cli(command).json().at("planners");
  };
  const auto with = rows({"--host", "100MB/s", "--out-dir", folder_ / "plans"}), without = rows({});
  EXPECT_LE(with.at(0).at("overhead_percent"), with.at(1).at("overhead_percent"));
  EXPECT_LE(with.at(0).at("overhead_percent"), with.at(2).at("overhead_percent"));
  EXPECT_GT(with.at(2).at("bytes_out"), 0);
  EXPECT_EQ(with.at(1).at("bytes_out"), 0);
  EXPECT_FALSE(without.at(0).contains("bytes_out"));
  EXPECT_EQ(without.at(2).at("status"), "not run");
  EXPECT_EQ(without.at(2).at("note"), "it needs a host (--host 25GB/s)");
  EXPECT_EQ(run_cli({"check", graph_, folder_ / "plans/offload_only.json", "--budget", "50%"}).code, 0);
}

TEST_F(HostCli, SweepGoesOnWhereTheHostIsFast) {
  const auto swept = [&](const std::vector<std::string>& more) {
    std::vector<std::string> command{"sweep", graph_, "--points", "4", "--work-limit", "40000", "--json"};
    command.insert(command.end(), more.begin(), more.end());
    return run_cli(command).json();
  };
  const auto with = swept({"--host", "1GB/s", "--out-dir", folder_ / "plans"}), without = swept({});
  EXPECT_FALSE(without.at("points").at(0).contains("stalled"));
  double last = 0;
  for (const auto& point : with.at("points")) {
    EXPECT_GE(point.at("overhead_percent"), last);
    last = point.at("overhead_percent");
    const std::string plan =
        folder_ / ("plans/" + std::to_string(point.at("budget").get<std::int64_t>()) + ".json");
    EXPECT_EQ(run_cli({"check", graph_, plan}).code, 0);
  }
  EXPECT_LT(with.at("points").back().at("overhead_percent"),
            without.at("points").back().at("overhead_percent"));
}

TEST_F(HostCli, InfoSaysWhatTheChannelsMoveAndWhatIsProved) {
  const auto info =
      run_cli({"info", graph_, "--host-out", "100MB/s", "--host-in", "50MB/s", "--json"}).json();
  const std::int64_t duration = info.at("base_duration");
  EXPECT_EQ(info.at("host_moves_out"), duration * 100);
  EXPECT_EQ(info.at("host_moves_in"), duration * 50);
  const auto& bounds = info.at("bounds_with_host");
  ASSERT_EQ(bounds.size(), 6U);
  for (const auto& row : bounds) {
    if (row.at("least_overhead_percent").is_null()) continue;
    EXPECT_LE(row.at("with_host_percent"), row.at("least_overhead_percent"));
  }
  EXPECT_GT(bounds.at(2).at("least_overhead_percent"), 0);
  EXPECT_FALSE(run_cli({"info", graph_, "--json"}).json().contains("host_moves_out"));
  EXPECT_NE(run_cli({"info", graph_, "--host", "none"}).code, 0);
}

}  // namespace
}  // namespace remat
