// Faults of the environment: full disks, closed pipes, signals, changing files, exhausted memory.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <filesystem>
#include <functional>
#include <thread>

#include "cli/run_cli.h"
#include "helpers/graphs.h"
#include "remat/error.h"
#include "remat/generate.h"
#include "remat/io.h"

namespace remat {
namespace {

namespace fs = std::filesystem;
using testing::CliRun;
using testing::run_cli;
using testing::RunningCli;

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool kIsSanitized = true;
#else
constexpr bool kIsSanitized = false;
#endif

void limit(__rlimit_resource resource, rlim_t amount) {
  const rlimit both{amount, amount};
  ::setrlimit(resource, &both);
}

/// A graph whose file has some hundred kilobytes, so that writing and reading it takes a while.
class Faults : public ::testing::Test {
 protected:
  Faults() { save_graph(big_, graph_); }

  static void expect_one_line(const CliRun& run, int code, const std::string& line) {
    EXPECT_EQ(run.code, code);
    EXPECT_EQ(run.err, "remat: " + line + "\n");
  }
  /// The names in the folder, in sequence.
  std::vector<std::string> files() const {
    std::vector<std::string> names;
    for (const auto& entry : fs::directory_iterator(folder_.path())) names.push_back(entry.path().filename());
    std::sort(names.begin(), names.end());
    return names;
  }

  const testing::TemporaryFolder folder_;
  const std::string graph_ = folder_ / "graph.json", out_ = folder_ / "out.json";
  const Graph big_ = chain({.length = 2000, .bytes = 100, .duration = 3, .training = true});
};

/// Every command that writes a file, writing `out`.
std::vector<std::vector<std::string>> writing_commands(const std::string& graph, const std::string& out) {
  return {{"plan", graph, "-b", "100%", "-o", out},
          {"convert", graph, "-o", out},
          {"generate", "chain", "--length", "2000", "-o", out}};
}

TEST_F(Faults, ADiskThatFillsUpLeavesTheOldFileAndNoOther) {
  for (const auto& command : writing_commands(graph_, out_)) {
    for (const rlim_t room : {0, 1, 4096}) {
      write_file(out_, "old");
      const CliRun run = run_cli(command, "", [room] { limit(RLIMIT_FSIZE, room); });
      // Standard output is a file too, but messages come before it is full.
      EXPECT_EQ(run.code, 1) << command.front();
      EXPECT_EQ(read_file(out_), "old") << command.front();
      EXPECT_EQ(files(), (std::vector<std::string>{"graph.json", "out.json"})) << command.front();
    }
  }
}

TEST_F(Faults, ADiskThatFillsUpIsNamed) {
  const CliRun run = run_cli({"convert", graph_, "-o", out_}, "", [] { limit(RLIMIT_FSIZE, 4096); });
  expect_one_line(run, 1, "cannot write " + out_ + ": File too large");
}

TEST_F(Faults, EveryCommandSaysThatStandardOutputIsFull) {
  for (const std::vector<std::string>& command :
       {std::vector<std::string>{"plan", graph_, "-b", "100%"},
        {"info", graph_},
        {"planners"},
        {"compare", graph_, "-b", "100%", "--planners", "keep_all"},
        {"sweep", graph_, "--points", "2", "--planner", "keep_all", "--csv"},
        {"convert", graph_, "-o", out_}}) {
    expect_one_line(run_cli(command, "/dev/full"), 1, "cannot write to standard output");
  }
}

TEST_F(Faults, APipeThatNobodyReadsIsAFailureAndThePlanIsKept) {
  const auto nobody_reads = [] {
    int ends[2];
    if (::pipe(ends) != 0) ::_exit(126);
    ::close(ends[0]);
    ::dup2(ends[1], STDOUT_FILENO);
  };
  const CliRun run = run_cli({"plan", graph_, "-b", "100%", "-o", out_}, "", nobody_reads);
  expect_one_line(run, 1, "cannot write to standard output");
  EXPECT_EQ(run_cli({"check", graph_, out_}).code, 0);
}

TEST_F(Faults, AClosedStandardOutputIsAFailureAndNoFileTakesItsPlace) {
  const auto close_it = [] { ::close(STDOUT_FILENO); };
  for (const auto& command : writing_commands(graph_, out_)) {
    expect_one_line(run_cli(command, "", close_it), 1, "cannot write to standard output");
    EXPECT_EQ(read_file(out_).find(" = "), std::string::npos) << "the report is in the file";
  }
  const CliRun run = run_cli({"info", graph_}, "", [] {
    ::close(STDIN_FILENO);
    ::close(STDERR_FILENO);
  });
  EXPECT_EQ(run.code, 0) << "nothing is said on standard error";
}

TEST_F(Faults, AKillAtAnyMomentLeavesTheOldFileOrTheNewOne) {
  const auto run_whole = [&] {
    const auto begun = std::chrono::steady_clock::now();
    EXPECT_EQ(run_cli({"convert", graph_, "-o", out_}).code, 0);
    return std::chrono::steady_clock::now() - begun;
  };
  auto whole = run_whole();
  const std::string after = read_file(out_);
  Random random(1);
  int old = 0, replaced = 0;
  for (int round = 0; round < 60 || replaced == 0; ++round) {
    if (round % 30 == 29 && replaced == 0) whole *= 2;  // the machine is busier than it was
    write_file(out_, "old");
    RunningCli running({"convert", graph_, "-o", out_});
    if (round > 0) std::this_thread::sleep_for(whole * random.between(0, 1200) / 1000);
    running.signal(SIGKILL);
    running.wait();
    const std::string found = read_file(out_);
    ASSERT_TRUE(found == "old" || found == after) << "round " << round << ": " << found.size() << " bytes";
    ++(found == "old" ? old : replaced);
  }
  EXPECT_GT(old, 0);
}

TEST_F(Faults, TerminationAtAnyMomentEndsWithAPlanOrWithoutAFile) {
  Random random(2);
  for (int round = 0; round < 12; ++round) {
    fs::remove(out_);
    RunningCli running({"plan", graph_, "-b", "30%", "--time-limit", "30s", "-o", out_});
    std::this_thread::sleep_for(std::chrono::milliseconds(random.between(0, 400)));
    running.signal(SIGTERM);
    const CliRun run = running.wait();
    // Before the handler is installed, the signal has its default effect.
    if (run.code == 128 + SIGTERM) {
      EXPECT_EQ(files(), (std::vector<std::string>{"graph.json"}));
    } else if (run.code == 0) {
      EXPECT_EQ(run.err, "");
      EXPECT_EQ(run_cli({"check", graph_, out_}).code, 0);
    } else {
      EXPECT_EQ(run.code, 3);
      EXPECT_EQ(std::count(run.err.begin(), run.err.end(), '\n'), 1) << run.err;
      EXPECT_FALSE(fs::exists(out_));
    }
  }
}

TEST_F(Faults, AFileThatIsReplacedWhileItIsReadIsReadAsOneOrTheOther) {
  const Graph small = testing::training_chain(3);
  const std::string first = format_graph(big_), second = format_graph(small);
  std::atomic<bool> stop = false;
  std::jthread replacing([&] {
    for (int i = 0; !stop; ++i) write_file(graph_, i % 2 ? first : second);
  });
  for (int round = 0; round < 30; ++round) {
    const CliRun run = run_cli({"info", graph_});
    EXPECT_EQ(run.code, 0) << run.err;
    EXPECT_TRUE(run.value("ops") == std::to_string(big_.num_ops()) ||
                run.value("ops") == std::to_string(small.num_ops()))
        << run.value("ops");
  }
  stop = true;
}

TEST_F(Faults, AFileThatIsCutWhileItIsReadIsOneLine) {
  const std::string text = format_graph(big_);
  std::atomic<bool> stop = false, is_cut = false;
  std::jthread cutting([&] {
    Random random(3);
    while (!stop) {
      std::error_code ignored;
      fs::resize_file(
          graph_, static_cast<std::uintmax_t>(random.below(static_cast<std::int64_t>(text.size()))), ignored);
      is_cut = true;
    }
  });
  while (!is_cut) std::this_thread::yield();
  for (int round = 0; round < 30; ++round) {
    const CliRun run = run_cli({"info", graph_});
    EXPECT_EQ(run.code, 1);
    EXPECT_TRUE(run.err.starts_with("remat: " + graph_)) << run.err;
    EXPECT_EQ(std::count(run.err.begin(), run.err.end(), '\n'), 1) << run.err;
  }
  stop = true;
}

/// The least address space, in kilobytes, in which the program starts at all.
rlim_t least_kilobytes() {
  rlim_t kilobytes = 8 << 10;
  for (const rlim_t step : {4 << 10, 256}) {
    const auto starts = [](rlim_t within) {
      return run_cli({"--version"}, "", [=] { limit(RLIMIT_AS, within << 10); }).code == 0;
    };
    while (!starts(kilobytes + step)) kilobytes += step;
  }
  return kilobytes + 256;
}

class OutOfMemory : public Faults, public ::testing::WithParamInterface<const char*> {};

// Without planners that call HiGHS or CP-SAT: a failed allocation in these, or in glibc for one of their
// threads, aborts the process.
TEST_P(OutOfMemory, IsOneLineAndLeavesNoFile) {
  if (kIsSanitized) GTEST_SKIP() << "a sanitizer needs the address space for itself";
  const rlim_t least = least_kilobytes();
  int refused = 0;
  for (rlim_t more = 0; more <= 24 << 10; more += 2 << 10) {
    fs::remove(out_);
    const CliRun run = run_cli({"plan", graph_, "-b", "50%", "--planner", GetParam(), "--time-limit", "200ms",
                                "--threads", "2", "-o", out_},
                               "", [=] { limit(RLIMIT_AS, (least + more) << 10); });
    SCOPED_TRACE(std::string(GetParam()) + " with " + std::to_string(least + more) + " kB: " + run.err);
    EXPECT_TRUE(run.code == 0 || run.code == 1 || run.code == 3) << run.code;
    EXPECT_EQ(fs::exists(out_), run.code == 0);
    if (run.code != 1) continue;
    ++refused;
    EXPECT_EQ(run.err, "remat: out of memory\n");
    EXPECT_EQ(files(), (std::vector<std::string>{"graph.json"}));
  }
  EXPECT_GT(refused, 0) << "no limit was too tight: nothing is tested";
}

INSTANTIATE_TEST_SUITE_P(Planners, OutOfMemory,
                         ::testing::Values("retention", "search", "rotor", "lower_set_dp", "hiremate",
                                           "auto"),
                         [](const auto& one) { return std::string(one.param); });

}  // namespace
}  // namespace remat
