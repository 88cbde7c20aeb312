// The subcommands, one file each. `add_NAME` declares the options of one; parsing fills `action`, and
// running that gives the exit code.
#pragma once

#include <CLI/App.hpp>
#include <functional>

namespace remat::cli {

using Action = std::function<int()>;

/// Parses the arguments, runs what they ask for, and returns the exit code. Every failure is one line.
int run_command(int argc, const char* const* argv);

void add_plan(CLI::App& app, Action& action);
void add_info(CLI::App& app, Action& action);
void add_check(CLI::App& app, Action& action);
void add_compare(CLI::App& app, Action& action);
void add_convert(CLI::App& app, Action& action);
void add_layout(CLI::App& app, Action& action);
void add_sweep(CLI::App& app, Action& action);
void add_largest(CLI::App& app, Action& action);
void add_pipeline(CLI::App& app, Action& action);
void add_generate(CLI::App& app, Action& action);
void add_planners(CLI::App& app, Action& action);
void add_report(CLI::App& app, Action& action);
void add_partition(CLI::App& app, Action& action);
void add_bench(CLI::App& app, Action& action);
void add_apply(CLI::App& app, Action& action);
void add_replay(CLI::App& app, Action& action);
void add_completion(CLI::App& app, Action& action);

}  // namespace remat::cli
