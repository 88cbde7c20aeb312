// `remat plan --executor`, through the real binary.
#include <gtest/gtest.h>

#include "cli/run_cli.h"

namespace remat {
namespace {

using testing::CliRun;
using testing::run_cli;

std::string model_in(const testing::TemporaryFolder& folder) {
  const std::string graph = folder / "gpt.json";
  EXPECT_EQ(run_cli({"generate", "gpt", "--depth", "3", "--width", "64", "--heads", "2", "--vocabulary",
                     "128", "--sequence", "64", "--batch", "4", "--durations", "roofline", "-o", graph})
                .code,
            0);
  return graph;
}

TEST(CliExecutor, SaysWhatTheExecutorAndWhatAnyPlanTakes) {
  const testing::TemporaryFolder folder;
  const std::string graph = model_in(folder), plan = folder / "plan.json";
  for (const std::string executor : {"checkpoint", "partitioner"}) {
    const CliRun run = run_cli({"plan", graph, "--budget", "70%", "--executor", executor, "--work-limit",
                                "3000000", "--json", "-o", plan});
    ASSERT_EQ(run.code, 0) << run.err;
    const auto said = run.json();
    EXPECT_EQ(said.at("executor"), executor);
    EXPECT_EQ(said.at("planner"), executor);
    EXPECT_EQ(said.contains("regions"), executor == "checkpoint");
    EXPECT_GT(said.at("recomputed_ops").get<int>(), 0);
    EXPECT_LE(said.at("peak").get<std::int64_t>(), said.at("budget").get<std::int64_t>());
    EXPECT_LE(said.at("full_duration").get<std::int64_t>(), said.at("duration").get<std::int64_t>());
    EXPECT_LE(said.at("duration_lower_bound").get<std::int64_t>(), said.at("duration").get<std::int64_t>());
    EXPECT_EQ(run_cli({"check", graph, plan}).code, 0);
  }
}

TEST(CliExecutor, ExitsAsAllCommandsDo) {
  const testing::TemporaryFolder folder;
  const std::string graph = model_in(folder);
  const CliRun none = run_cli({"plan", graph, "--budget", "100000", "--executor", "checkpoint"});
  EXPECT_EQ(none.code, 2);
  EXPECT_EQ(
      none.err.rfind("remat: proved infeasible: no set of saved results of the executor 'checkpoint' fits "
                     "into 97.7 KiB (100000 bytes); the smallest peak found is ",
                     0),
      0U)
      << none.err;
  for (const std::vector<std::string>& more : std::vector<std::vector<std::string>>{
           {"--order", "free"}, {"--objective", "peak"}, {"--budget-on", "arena"}}) {
    std::vector<std::string> command{"plan", graph, "--budget", "70%", "--executor", "partitioner"};
    command.insert(command.end(), more.begin(), more.end());
    const CliRun wrong = run_cli(command);
    EXPECT_EQ(wrong.code, 64) << more[0];
    EXPECT_EQ(wrong.err.rfind("remat: --executor partitioner ", 0), 0U) << wrong.err;
    EXPECT_NE(wrong.err.find(more[0]), std::string::npos) << wrong.err;
  }
  const CliRun host =
      run_cli({"plan", graph, "--budget", "70%", "--executor", "checkpoint", "--host", "1GB/s"});
  EXPECT_EQ(host.code, 64);
  EXPECT_EQ(host.err.rfind("remat: --executor checkpoint and --host do not go together", 0), 0U) << host.err;
  EXPECT_EQ(run_cli({"plan", graph, "--budget", "70%", "--executor", "window"}).code, 64);
  const std::string chain = folder / "chain.json";
  ASSERT_EQ(run_cli({"generate", "chain", "-o", chain}).code, 0);
  const CliRun lacks = run_cli({"plan", chain, "--budget", "70%", "--executor", "checkpoint"});
  EXPECT_EQ(lacks.code, 1);
  EXPECT_NE(lacks.err.find("chain.json: graph "), std::string::npos) << lacks.err;
  EXPECT_NE(lacks.err.find("numbered modules"), std::string::npos) << lacks.err;
}

}  // namespace
}  // namespace remat
