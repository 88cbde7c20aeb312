// Runs the real binary and captures its output.
#pragma once

#include <sys/types.h>

#include <filesystem>
#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace remat::testing {

struct CliRun {
  int code = -1;  ///< exit code, or 128 + signal
  std::string out, err;
  nlohmann::json json() const { return nlohmann::json::parse(out); }
  /// The value of a `key = value` line, or "(none)".
  std::string value(const std::string& key) const;
};

/// Runs `remat` with the arguments and waits. Standard output goes to `out_path` if given; `prepare` is
/// called in the child just before exec.
CliRun run_cli(const std::vector<std::string>& arguments, const std::string& out_path = "",
               const std::function<void()>& prepare = {});

/// All that is written to a pseudo-terminal until its other end is closed. One read may return a part.
std::string read_terminal(int terminal);

/// A `remat` that is still running.
class RunningCli {
 public:
  /// With `terminal`, standard error is a pseudo-terminal.
  explicit RunningCli(const std::vector<std::string>& arguments, bool terminal = false);
  ~RunningCli();
  RunningCli(const RunningCli&) = delete;
  RunningCli& operator=(const RunningCli&) = delete;
  void signal(int number) const;
  CliRun wait();

 private:
  std::filesystem::path folder_;
  pid_t pid_ = -1;
  int terminal_ = -1;
};

/// An empty folder, deleted at the end of the test.
class TemporaryFolder {
 public:
  TemporaryFolder();
  ~TemporaryFolder();
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
  std::string operator/(const std::string& name) const { return (path_ / name).string(); }
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

}  // namespace remat::testing
