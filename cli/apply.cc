// remat apply: hands over to the Python package, which reads and writes ONNX.
#include <CLI/CLI.hpp>

#include "commands.h"
#include "python.h"

namespace remat::cli {

void add_apply(CLI::App& app, Action& action) {
  CLI::App* sub = app.add_subcommand(
      "apply", "write an ONNX model in the order of a plan, recomputations as copies of nodes (Python)");
  sub->set_help_flag();  // the package explains itself
  sub->prefix_command();
  sub->callback([sub, &action] { action = [sub] { return run_python("apply_command", sub->remaining()); }; });
}

}  // namespace remat::cli
