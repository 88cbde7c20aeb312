#include "cli/run_cli.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>
#include <sstream>
#include <stdexcept>

#include "helpers/places.h"

namespace remat::testing {
namespace {

std::string contents(const std::filesystem::path& path) {
  std::ifstream in(path);
  std::ostringstream text;
  text << in.rdbuf();
  return text.str();
}

using Prepare = std::function<void()>;

/// In the child: never returns.
[[noreturn]] void execute(const std::vector<std::string>& arguments, const char* out, int err,
                          const Prepare& prepare) {
  const int in = ::open("/dev/null", O_RDONLY), to = ::open(out, O_WRONLY | O_CREAT | O_TRUNC, 0600);
  ::dup2(in, STDIN_FILENO);
  ::dup2(to, STDOUT_FILENO);
  ::dup2(err, STDERR_FILENO);
  std::vector<char*> argv{const_cast<char*>("remat")};
  for (const std::string& argument : arguments) argv.push_back(const_cast<char*>(argument.c_str()));
  argv.push_back(nullptr);
  if (prepare) prepare();
  ::execv(cli_path().c_str(), argv.data());
  ::_exit(127);
}

pid_t start(const std::vector<std::string>& arguments, const std::string& out, const std::string& err,
            const Prepare& prepare = {}) {
  const int to = ::open(err.c_str(), O_RDWR | O_CREAT | O_NOCTTY | O_CLOEXEC, 0600);
  const pid_t pid = ::fork();
  if (pid < 0 || to < 0) throw std::runtime_error("cannot start " + cli_path());
  if (pid == 0) execute(arguments, out.c_str(), to, prepare);
  ::close(to);
  return pid;
}

int wait_for(pid_t pid) {
  int status = 0;
  ::waitpid(pid, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

}  // namespace

std::string CliRun::value(const std::string& key) const {
  std::istringstream lines(out);
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with(key + " = ")) return line.substr(key.size() + 3);
  }
  return "(none)";
}

CliRun run_cli(const std::vector<std::string>& arguments, const std::string& out_path,
               const Prepare& prepare) {
  const TemporaryFolder folder;
  const std::string out = out_path.empty() ? folder / "out" : out_path;
  CliRun run;
  run.code = wait_for(start(arguments, out, folder / "err", prepare));
  if (out_path.empty()) run.out = contents(out);
  run.err = contents(folder / "err");
  return run;
}

std::string read_terminal(int terminal) {
  std::string text;
  char buffer[4096];
  for (ssize_t got = 0; (got = ::read(terminal, buffer, sizeof buffer)) > 0;) {
    text.append(buffer, static_cast<std::size_t>(got));
  }
  return text;
}

RunningCli::RunningCli(const std::vector<std::string>& arguments, bool terminal) {
  std::string name = (std::filesystem::temp_directory_path() / "remat_cli_XXXXXX").string();
  folder_ = ::mkdtemp(name.data());
  std::string err = (folder_ / "err").string();
  if (terminal) {
    terminal_ = ::posix_openpt(O_RDWR | O_NOCTTY);
    if (terminal_ < 0 || ::grantpt(terminal_) != 0 || ::unlockpt(terminal_) != 0) {
      throw std::runtime_error("no pseudo-terminal");
    }
    err = ::ptsname(terminal_);
  }
  pid_ = start(arguments, (folder_ / "out").string(), err);
}

RunningCli::~RunningCli() {
  if (pid_ > 0) {
    ::kill(pid_, SIGKILL);
    wait_for(pid_);
  }
  if (terminal_ >= 0) ::close(terminal_);
  std::filesystem::remove_all(folder_);
}

void RunningCli::signal(int number) const { ::kill(pid_, number); }

CliRun RunningCli::wait() {
  CliRun run;
  if (terminal_ >= 0) run.err = read_terminal(terminal_);
  run.code = wait_for(pid_);
  pid_ = -1;
  run.out = contents(folder_ / "out");
  if (terminal_ < 0) run.err = contents(folder_ / "err");
  return run;
}

TemporaryFolder::TemporaryFolder() {
  std::string name = (std::filesystem::temp_directory_path() / "remat_cli_XXXXXX").string();
  path_ = ::mkdtemp(name.data());
}
TemporaryFolder::~TemporaryFolder() { std::filesystem::remove_all(path_); }

}  // namespace remat::testing
