// remat: plans which results of a computation to keep and which to compute again.
#include <fcntl.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>

#include "commands.h"
#include "remat/left_behind.h"

namespace {

/// What cannot be written is an error to be told, not a signal that ends the run: a pipe that nobody reads
/// any more, a file that may not grow.
void ignore_write_signals() {
  for (int signal : {SIGPIPE, SIGXFSZ}) std::signal(signal, SIG_IGN);
}

/// A standard stream that is closed keeps its number, so that no file opened later gets what is meant for it.
/// Writing to it still fails.
void hold_closed_streams() {
  for (int stream : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
    if (::fcntl(stream, F_GETFD) < 0) ::open("/dev/null", stream == STDIN_FILENO ? O_WRONLY : O_RDONLY);
  }
}

}  // namespace

int main(int argc, char** argv) {
  ignore_write_signals();
  hold_closed_streams();
  const int code = remat::cli::run_command(argc, argv);
  if (remat::work_is_left_behind()) std::_Exit(code);  // all is written
  return code;
}
