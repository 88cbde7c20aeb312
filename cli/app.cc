// The whole command line but for the process around it.
#include <CLI/CLI.hpp>
#include <iostream>
#include <system_error>

#include "commands.h"
#include "common.h"
#include "remat/error.h"

namespace remat::cli {
namespace {

int fail(const std::string& message, int code) {
  std::cerr << "remat: " << one_line(message) << "\n";
  return code;
}

/// The exit code, unless what was said has not arrived.
int flushed(int code) {
  std::cout.flush();
  return std::cout ? code : fail("cannot write to standard output", kFailure);
}

int run(const Action& action) {
  int code = kFailure;
  try {
    code = action();
  } catch (const UsageError& error) {
    code = fail(error.what(), kUsage);
  } catch (const InputError& error) {
    code = fail(error.what(), kFailure);
  } catch (const std::bad_alloc&) {
    code = fail("out of memory", kFailure);
  } catch (const std::system_error& error) {
    code = fail(std::string("refused by the system: ") + error.what(), kFailure);
  } catch (const std::exception& error) {
    code = fail(std::string("internal error: ") + error.what(), kFailure);
  }
  return flushed(code);
}

std::string usage_message(const CLI::App& app, const CLI::ParseError& error, const std::string& first) {
  const auto used = app.get_subcommands();
  if (!used.empty())
    return std::string(error.what()) + " (see 'remat " + used.front()->get_name() + " --help')";
  if (first.empty() || first.starts_with('-')) return std::string(error.what()) + " (see 'remat --help')";
  std::string known;
  for (const CLI::App* sub : app.get_subcommands(nullptr))
    known += (known.empty() ? "" : ", ") + sub->get_name();
  return "unknown command '" + first + "'; known: " + known;
}

}  // namespace

int run_command(int argc, const char* const* argv) {
  CLI::App app{
      "Plans which results of a computation to keep and which to compute again, so that it runs within a "
      "memory "
      "budget at the least extra time.",
      "remat"};
  app.set_version_flag("--version", "remat " REMAT_VERSION);
  app.require_subcommand(1);
  app.footer(
      "Exit codes: 0 a plan within the budget, or success; 1 bad input or failure; 2 proved that no plan "
      "fits;\n"
      "3 nothing found within the limits; 64 wrong usage; 130 compare, sweep, largest or bench interrupted: "
      "the rows "
      "so far\nare printed.");
  Action action;
  for (const auto add :
       {add_plan, add_info, add_check, add_compare, add_sweep, add_largest, add_pipeline, add_report,
        add_layout, add_convert, add_generate, add_planners, add_partition, add_bench, add_replay})
    add(app, action);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) return flushed(app.exit(error));  // --help, --version
    return fail(usage_message(app, error, argc > 1 ? argv[1] : ""), kUsage);
  }
  return run(action);
}

}  // namespace remat::cli
