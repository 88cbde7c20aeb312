// remat replay: hands over to the Python package, which reads pickles.
#include <CLI/CLI.hpp>

#include "commands.h"
#include "python.h"

namespace remat::cli {

void add_replay(CLI::App& app, Action& action) {
  CLI::App* sub = app.add_subcommand(
      "replay", "compare a recorded history of CUDA memory with the simulated allocator (Python)");
  sub->set_help_flag();  // the package explains itself
  sub->prefix_command();
  sub->callback([sub, &action] { action = [sub] { return run_python("replay", sub->remaining()); }; });
}

}  // namespace remat::cli
