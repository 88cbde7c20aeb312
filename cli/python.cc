#include "python.h"

#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>

#include "remat/error.h"

namespace remat::cli {
namespace {

/// The Python that the package started this program from, else the one it was built for, if it is on this
/// machine, else the first.
std::string python() {
  const char* given = std::getenv("REMAT_PYTHON");
#ifdef REMAT_PYTHON_EXECUTABLE
  if (given == nullptr && access(REMAT_PYTHON_EXECUTABLE, X_OK) == 0) return REMAT_PYTHON_EXECUTABLE;
#endif
  return given == nullptr ? "python3" : given;
}

}  // namespace

int run_python(const std::string& command, const std::vector<std::string>& arguments) {
  const std::string interpreter = python();
  std::vector<std::string> words{interpreter, "-m", "remat." + command};
  words.insert(words.end(), arguments.begin(), arguments.end());
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  // Python drops a Ctrl-C that comes while it starts; the package unblocks it when it can answer.
  sigset_t ctrl_c;
  sigemptyset(&ctrl_c);
  sigaddset(&ctrl_c, SIGINT);
  sigprocmask(SIG_BLOCK, &ctrl_c, nullptr);
  execvp(interpreter.c_str(), argv.data());
  const int error = errno;
  sigprocmask(SIG_UNBLOCK, &ctrl_c, nullptr);
  throw InputError(command + " needs the Python package ('make build' or 'pip install .'), and " +
                   interpreter + " cannot be run: " + std::strerror(error));
}

}  // namespace remat::cli
