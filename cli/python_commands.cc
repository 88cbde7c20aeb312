// Commands passed unchanged to the Python package, which parses their arguments and prints their help.
#include <CLI/CLI.hpp>

#include "commands.h"
#include "python.h"

namespace remat::cli {
namespace {

void hand_over(CLI::App& app, Action& action, const std::string& name, const std::string& module,
               const std::string& what) {
  CLI::App* sub = app.add_subcommand(name, what + " (Python)");
  sub->set_help_flag();  // the package prints its own help
  sub->prefix_command();
  sub->callback(
      [sub, module, &action] { action = [sub, module] { return run_python(module, sub->remaining()); }; });
}

}  // namespace

void add_bench(CLI::App& app, Action& action) {
  hand_over(app, action, "bench", "bench", "measure the tables and figures of four papers");
}

void add_replay(CLI::App& app, Action& action) {
  hand_over(app, action, "replay", "replay",
            "compare a recorded history of CUDA memory with the simulated allocator");
}

void add_apply(CLI::App& app, Action& action) {
  hand_over(app, action, "apply", "apply_command",
            "write an ONNX model in the order of a plan, recomputations as copies of nodes");
}

}  // namespace remat::cli
