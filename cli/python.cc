#include "python.h"

#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>

#include "remat/error.h"

namespace remat::cli {
namespace {

/// The Python that started this program, else the one it was built for, if present, else the first on PATH.
std::string python() {
  const char* given = std::getenv("REMAT_PYTHON");
#ifdef REMAT_PYTHON_EXECUTABLE
  if (given == nullptr && access(REMAT_PYTHON_EXECUTABLE, X_OK) == 0) return REMAT_PYTHON_EXECUTABLE;
#endif
  return given == nullptr ? "python3" : given;
}

/// Replaces this process by that Python; returns an error number on failure.
int become_python(const std::string& command, const std::vector<std::string>& arguments) {
  const std::string interpreter = python();
  std::vector<std::string> words{interpreter, "-m", "remat." + command};
  words.insert(words.end(), arguments.begin(), arguments.end());
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  execvp(interpreter.c_str(), argv.data());
  return errno;
}

[[noreturn]] void refuse(const std::string& command, int error) {
  throw InputError(command + " needs the Python package ('make build' or 'pip install .'), and " + python() +
                   " cannot be run: " + std::strerror(error));
}

std::string read_all(int file) {
  std::string text;
  std::array<char, 1 << 16> part;
  for (;;) {
    const ssize_t count = ::read(file, part.data(), part.size());
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return text;
    text.append(part.data(), static_cast<std::size_t>(count));
  }
}

}  // namespace

int run_python(const std::string& command, const std::vector<std::string>& arguments) {
  // Python loses a Ctrl-C that arrives while it starts, so it is blocked here; the package unblocks it.
  sigset_t ctrl_c;
  sigemptyset(&ctrl_c);
  sigaddset(&ctrl_c, SIGINT);
  sigprocmask(SIG_BLOCK, &ctrl_c, nullptr);
  const int error = become_python(command, arguments);
  sigprocmask(SIG_UNBLOCK, &ctrl_c, nullptr);
  refuse(command, error);
}

std::optional<std::string> python_output(const std::string& command,
                                         const std::vector<std::string>& arguments) {
  constexpr int kCannotRun = 127;
  std::array<int, 2> ends{};
  if (::pipe(ends.data()) != 0) refuse(command, errno);
  const pid_t child = ::fork();
  if (child < 0) refuse(command, errno);
  if (child == 0) {
    ::dup2(ends[1], STDOUT_FILENO);
    ::close(ends[0]);
    ::close(ends[1]);
    become_python(command, arguments);
    ::_exit(kCannotRun);
  }
  ::close(ends[1]);
  std::string text = read_all(ends[0]);
  ::close(ends[0]);
  int status = 0;
  while (::waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  if (WIFEXITED(status) && WEXITSTATUS(status) == kCannotRun) refuse(command, ENOENT);
  if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) return std::nullopt;
  return text;
}

}  // namespace remat::cli
