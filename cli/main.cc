// remat: plans which results of a computation to keep and which to recompute.
#include <fcntl.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>

#include "commands.h"
#include "remat/left_behind.h"

namespace {

/// Failed writes (a closed pipe, a file size limit) are reported as errors and must not kill the process.
void ignore_write_signals() {
  for (int signal : {SIGPIPE, SIGXFSZ}) std::signal(signal, SIG_IGN);
}

/// Occupies the numbers of closed standard streams, so that no file opened later receives their output.
/// Writing to them still fails.
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
  if (remat::work_is_left_behind()) std::_Exit(code);  // all output is written
  return code;
}
