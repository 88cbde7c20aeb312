// remat bench: hands over to the Python package, which drives this command line and draws with matplotlib.
#include <CLI/CLI.hpp>

#include "commands.h"
#include "python.h"

namespace remat::cli {

void add_bench(CLI::App& app, Action& action) {
  CLI::App* sub = app.add_subcommand("bench", "measure the tables and figures of four papers (Python)");
  sub->set_help_flag();  // the package explains itself
  sub->prefix_command();
  sub->callback([sub, &action] { action = [sub] { return run_python("bench", sub->remaining()); }; });
}

}  // namespace remat::cli
