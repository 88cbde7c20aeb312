// remat report: the files it writes and what it refuses.
#include <gtest/gtest.h>

#include <filesystem>

#include "cli/run_cli.h"
#include "helpers/graphs.h"
#include "remat/io.h"
#include "remat/plan.h"

namespace remat {
namespace {

using testing::CliRun;
using testing::run_cli;

class ReportCli : public ::testing::Test {
 protected:
  ReportCli() {
    save_graph(chain_, graph_);
    run_cli({"plan", graph_, "-b", "6", "-o", plan_});
  }
  const testing::TemporaryFolder folder_;
  const std::string graph_ = folder_ / "chain.json", plan_ = folder_ / "a.plan", page_ = folder_ / "r.html";
  const Graph chain_ = testing::training_chain(12);
};

TEST_F(ReportCli, WritesOnePageWithPlansAndTheCurve) {
  const CliRun run = run_cli({"report", graph_, plan_, "-o", page_, "--work-limit", "100000"});
  ASSERT_EQ(run.code, 0) << run.err;
  EXPECT_EQ(run.err, "");
  EXPECT_EQ(run.value("report_file"), page_);
  EXPECT_EQ(run.value("plans"), "1");
  EXPECT_GE(std::stoi(run.value("points")), 2);
  const std::string text = read_file(page_);
  EXPECT_EQ(run.value("bytes"), std::to_string(text.size()));
  EXPECT_TRUE(text.starts_with("<!doctype html>"));
  EXPECT_NE(text.find("remat report " + graph_), std::string::npos);
  // The same work gives the same page but for the seconds that the curve took.
  for (const char* outside : {"src=\"http", "href=\"http", "url(http", "@import"}) {
    EXPECT_EQ(text.find(outside), std::string::npos) << outside;
  }
}

TEST_F(ReportCli, TheJsonFormatAgreesWithCheck) {
  ASSERT_EQ(run_cli({"report", graph_, plan_, "-o", page_, "--format", "json", "--points", "0"}).code, 0);
  const auto shown = nlohmann::json::parse(read_file(page_)).at("plans").at(0);
  const auto check = run_cli({"check", graph_, plan_, "--json"}).json();
  for (const char* key : {"peak", "peak_step", "duration", "overhead"})
    EXPECT_EQ(shown.at(key), check.at(key)) << key;
}

TEST_F(ReportCli, AllFormatsAreWritten) {
  for (const char* format : {"html", "json", "csv", "perfetto", "memory_viz"}) {
    const CliRun run =
        run_cli({"report", graph_, plan_, "-o", folder_ / format, "--format", format, "--points", "0"});
    EXPECT_EQ(run.code, 0) << run.err;
    EXPECT_GT(std::filesystem::file_size(folder_ / format), 100);
  }
}

TEST_F(ReportCli, BadInputIsOneLineAndNoFile) {
  const std::string other = folder_ / "other.json";
  save_graph(testing::training_chain(5), other);
  const auto expect = [&](const std::vector<std::string>& arguments, int code, const std::string& part) {
    const CliRun run = run_cli(arguments);
    EXPECT_EQ(run.code, code) << run.err;
    EXPECT_NE(run.err.find(part), std::string::npos) << run.err;
    EXPECT_EQ(std::count(run.err.begin(), run.err.end(), '\n'), 1) << run.err;
    EXPECT_FALSE(std::filesystem::exists(page_));
  };
  expect({"report", other, plan_, "-o", page_}, 1, plan_ + ": the plan is of another graph: graph_hash ");
  expect({"report", graph_, folder_ / "none.plan", "-o", page_}, 1, "none.plan");
  expect({"report", graph_, graph_, "-o", page_}, 1, graph_);
  expect({"report", graph_, "-o", folder_ / "no/r.html"}, 1, "cannot write");
  expect({"report", graph_, "-o", graph_}, 1, graph_);
  expect({"report", graph_}, 64, "--output is required");
  expect({"report", graph_, "-o", page_, "--format", "pdf"}, 64, "pdf");
  expect({"report", graph_, "-o", page_, "--points", "1"}, 64, "2 points or more");
  expect({"report", graph_, "-o", page_, "--planners", "nobody"}, 64, "nobody");
  expect({"report", graph_, plan_, plan_, "-o", page_, "--format", "csv"}, 64, "shows one plan, not 2");
}

TEST_F(ReportCli, OtherPlannersAreCurvesOfTheirOwn) {
  const CliRun run = run_cli({"report", graph_, "-o", page_, "--format", "json", "--planners", "chen,dtr",
                              "--points", "4", "--work-limit", "20000"});
  ASSERT_EQ(run.code, 0) << run.err;
  const auto curves = nlohmann::json::parse(read_file(page_)).at("curves");
  ASSERT_EQ(curves.size(), 3);
  EXPECT_EQ(curves.at(0).at("planner"), "auto");
  EXPECT_EQ(curves.at(2).at("planner"), "dtr");
}

}  // namespace
}  // namespace remat
