// `remat pipeline`, through the real binary.
#include <gtest/gtest.h>

#include <fstream>

#include "cli/run_cli.h"

namespace remat {
namespace {

using testing::CliRun;
using testing::run_cli;

/// A small model with an optimizer, in a file.
std::string deep_model_in(const testing::TemporaryFolder& folder) {
  const std::string graph = folder / "gpt.json";
  EXPECT_EQ(run_cli({"generate",     "gpt",      "--depth",    "8",  "--width", "64", "--heads",     "2",
                     "--vocabulary", "128",      "--sequence", "64", "--batch", "4",  "--optimizer", "adam",
                     "--durations",  "roofline", "-o",         graph})
                .code,
            0);
  return graph;
}

TEST(CliPipeline, PrintsStagesAndWhatUniformOnesTake) {
  const testing::TemporaryFolder folder;
  const std::string graph = deep_model_in(folder), policies = folder / "policies.json";
  const CliRun run = run_cli({"pipeline", graph, "--stages", "3", "--microbatches", "6", "--budget", "8MiB",
                              "--executor", "checkpoint", "--json", "-o", policies});
  ASSERT_EQ(run.code, 0) << run.err;
  const auto said = run.json();
  EXPECT_EQ(said.at("status"), "optimal");
  EXPECT_EQ(said.at("blocks"), 10);
  ASSERT_EQ(said.at("stages").size(), 3U);
  EXPECT_EQ(said.at("stages").at(0).at("in_flight"), 3);
  for (const auto& stage : said.at("stages")) EXPECT_LE(stage.at("peak").get<int>(), 8 << 20);
  ASSERT_EQ(said.at("plans").size(), 4U);
  EXPECT_EQ(said.at("plans").at(0).at("ratio"), 1.0);
  const auto saved = nlohmann::json::parse(std::ifstream(policies));
  EXPECT_EQ(saved.at("format"), "remat.pipeline");
  EXPECT_EQ(saved.at("stages").at(0).at("blocks").at(0).at("name"), "embed");
  const CliRun table = run_cli({"pipeline", graph, "--stages", "3", "--budget", "1GiB"});
  EXPECT_NE(table.out.find("uniform cuts, one choice"), std::string::npos) << table.out;
}

TEST(CliPipeline, ExitsAsAllCommandsDo) {
  const testing::TemporaryFolder folder;
  const std::string graph = deep_model_in(folder);
  const CliRun none = run_cli({"pipeline", graph, "--stages", "3", "--budget", "1MiB"});
  EXPECT_EQ(none.code, 2);
  EXPECT_EQ(none.err.rfind(
                "remat: proved infeasible: no cuts and choices fit into 1.00 MiB (1048576 bytes): stage", 0),
            0U)
      << none.err;
  EXPECT_NE(none.err.find("; the least budget is "), std::string::npos) << none.err;
  EXPECT_EQ(run_cli({"pipeline", graph, "--stages", "11", "--budget", "1GiB"}).code, 64);
  EXPECT_EQ(run_cli({"pipeline", graph + "*x", "--budget", "1GiB"}).code, 64);
  EXPECT_EQ(run_cli({"pipeline", graph, "--budget", "50%"}).code, 64);
  EXPECT_EQ(run_cli({"pipeline", graph, "--schedule", "gpipe", "--budget", "1GiB"}).code, 64);
  EXPECT_EQ(run_cli({"pipeline", graph + "*2", "--stages", "4", "--budget", "1GiB"}).code, 0);
}

}  // namespace
}  // namespace remat
