// The whole command line but for the process around it.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <iostream>
#include <system_error>

#include "commands.h"
#include "common.h"
#include "remat/error.h"
#include "remat/words.h"

namespace remat::cli {
namespace {

int fail(const std::string& message, int code) {
  std::cerr << "remat: " << one_line(message) << "\n";
  return code;
}

/// The exit code; a failure if the output could not be written.
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

/// The innermost command given: `remat generate gpt`, not `remat`.
const CLI::App& innermost(const CLI::App& app) {
  const auto used = app.get_subcommands();
  return used.empty() ? app : innermost(*used.front());
}

std::string full_name(const CLI::App& app) {
  return (app.get_parent() ? full_name(*app.get_parent()) + " " : "") + app.get_name();
}

/// "unknown option '--bugdet': did you mean '--budget'?" for the first invalid word that looks like an
/// option.
std::string unknown_option(const CLI::App& command, const std::vector<std::string>& words) {
  std::vector<std::string> known;
  for (const CLI::Option* option : command.get_options()) {
    for (const std::string& name : option->get_lnames()) known.push_back("--" + name);
    for (const std::string& name : option->get_snames()) known.push_back("-" + name);
  }
  for (const std::string& word : words) {
    if (word == "--") break;
    const std::string name = word.substr(0, word.find('='));
    if (!name.starts_with("--") || std::ranges::find(known, name) != known.end()) continue;
    return "unknown option '" + name + "'" + did_you_mean(name, known);
  }
  return "";
}

/// ": did you mean '60%'?" for an amount whose unit became a word of its own.
std::string split_amount(const std::vector<std::string>& words) {
  for (std::size_t i = 1; i < words.size(); ++i) {
    const std::string whole = words[i - 1] + words[i];
    const bool is_unit = !words[i].empty() && words[i].find_first_of("0123456789-./") == std::string::npos;
    const bool is_number = words[i - 1].find_first_not_of("0123456789.") == std::string::npos;
    if (!is_unit || !is_number) continue;
    try {
      parse_budget(whole, Bytes(kMaxCount / 1000));
      return ": did you mean '" + whole + "'?";
    } catch (const UsageError&) {
    }
  }
  return "";
}

std::string usage_message(const CLI::App& app, const CLI::ParseError& error,
                          const std::vector<std::string>& words) {
  const CLI::App& command = innermost(app);
  const std::string see = " (see '" + full_name(command) + " --help')";
  if (&command == &app && !words.empty() && !words.front().starts_with('-')) {
    std::vector<std::string> known;
    for (const CLI::App* sub : app.get_subcommands(nullptr)) known.push_back(sub->get_name());
    known.emplace_back("--help");
    return unknown_word("command", words.front(), known);
  }
  const std::string option = unknown_option(command, words);
  if (!option.empty()) return option + see;
  if (dynamic_cast<const CLI::ArgumentMismatch*>(&error) != nullptr) {
    const std::string what = error.what();
    const std::string name = what.substr(0, what.find(':'));
    const bool is_repeated = what.find("At Most") != std::string::npos;
    return name + (is_repeated ? " is given more than once" : " needs a value") + see;
  }
  const bool is_extra = dynamic_cast<const CLI::ExtrasError*>(&error) != nullptr;
  return error.what() + (is_extra ? split_amount(words) : "") + see;
}

}  // namespace

int run_command(int argc, const char* const* argv) {
  CLI::App app{
      "Plans which results of a computation to keep and which to compute again, so that it runs within a "
      "memory "
      "budget at the least extra time.",
      "remat"};
  app.set_version_flag("--version", "remat " REMAT_VERSION REMAT_LACKS);
  app.require_subcommand(1);
  app.footer(
      "Exit codes: 0 a plan within the budget, or success; 1 bad input or failure; 2 proved that no plan "
      "fits;\n"
      "3 nothing found within the limits; 64 wrong usage; 130 compare, sweep, largest or bench interrupted: "
      "the rows "
      "so far\nare printed.");
  Action action;
  for (const auto add : {add_plan, add_info, add_check, add_compare, add_sweep, add_largest, add_pipeline,
                         add_report, add_layout, add_convert, add_apply, add_generate, add_planners,
                         add_partition, add_bench, add_replay, add_completion})
    add(app, action);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) return flushed(app.exit(error));  // --help, --version
    return fail(usage_message(app, error, {argv + std::min(argc, 1), argv + argc}), kUsage);
  }
  return run(action);
}

}  // namespace remat::cli
