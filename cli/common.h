// What the subcommands share: exit codes, options, output, signals, progress.
#pragma once

#include <CLI/CLI.hpp>
#include <atomic>
#include <charconv>
#include <concepts>
#include <functional>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "files.h"
#include "remat/error.h"
#include "remat/io.h"
#include "remat/limits.h"
#include "remat/planner.h"
#include "remat/request.h"

namespace remat::cli {

enum ExitCode : int {
  kOk = 0,            ///< a plan within the budget, or the check passed
  kFailure = 1,       ///< bad input or failure
  kInfeasible = 2,    ///< proved: no plan fits
  kNothingFound = 3,  ///< no plan found within the limits, nothing proved
  kUsage = 64,
  kInterrupted = 130,  ///< Ctrl-C ended a table of several runs
};

/// The output of a command, in order. Scalars become `key = value` lines, arrays of objects become tables.
using Report = nlohmann::ordered_json;

/// How a report looks on a terminal. (Through a pipe, and as JSON, numbers stay as they are.)
struct Look {
  std::string time_unit = {};           ///< of the graph
  std::vector<std::string> spare = {};  ///< table columns to drop, first ones first, if not all fit
};

/// Prints one JSON object, or lines and tables, to standard output; to standard error if the command writes a
/// file to standard output.
void print(const Report& report, bool as_json, const Look& look = {});
/// A value on one line, without units.
std::string cell(const Report& value);
/// "remat: warning: ..." on standard error.
void warn(const std::string& message);
/// A text on one line: control characters become spaces.
std::string one_line(std::string text);
/// 0.0123 to "1.23 %".
std::string percent(double ratio);

/// An option that names a file or folder to write; an empty name is wrong usage.
CLI::Option* add_output(CLI::App& command, const std::string& names, std::string& into,
                        const std::string& description);

/// An option whose whole text is a number that `accepts`; `expected` says what that is.
template <class Number, class Into>
CLI::Option* add_number(CLI::App& command, const std::string& names, Into& into,
                        const std::string& description, const std::string& expected,
                        std::function<bool(Number)> accepts) {
  const auto read = [&into, names, expected, accepts](const std::string& text) {
    Number value{};
    const char* end = text.data() + text.size();
    const auto [at, error] = std::from_chars(text.data(), end, value);
    if (error != std::errc() || at != end || !accepts(value)) {
      throw CLI::ValidationError(names, "'" + text + "' is not " + expected);
    }
    into = value;
  };
  return command.add_option_function<std::string>(names, read, description)->type_name("N");
}

/// An option that takes an integer in [lo, hi].
template <std::integral Whole, class Into>
CLI::Option* add_whole(CLI::App& command, const std::string& names, Into& into, Whole lo, Whole hi,
                       const std::string& description) {
  return add_number<Whole>(command, names, into, description,
                           "an integer in [" + std::to_string(lo) + ", " + std::to_string(hi) + "]",
                           [lo, hi](Whole value) { return lo <= value && value <= hi; });
}

/// Makes the folder and those above it where they are missing. Throws InputError.
void create_folder(const std::string& path);

/// Pairs of ops, the second of which reads something that the first makes.
std::size_t count_edges(const Graph& graph);

/// "KEY=VALUE" texts as options of a planner. Throws UsageError.
std::map<std::string, std::string> parse_set(const std::vector<std::string>& texts);

/// The option takes one of `words`, which its help shows as "{fixed,free}".
void take_one_of(CLI::Option& option, const std::vector<std::string>& words);

/// --time-limit, --work-limit, --seed, --gap, --threads, --set.
struct EffortOptions {
  std::string default_time = "10s";
  std::optional<std::string> time_limit;
  std::optional<std::int64_t> work_limit;
  std::string gap = "0.01%";
  std::vector<std::string> set;
  PlanOptions plan;
  double gap_limit = 0;  ///< as a share; 0: none

  void declare(CLI::App& command);
  /// Declares only the limits and the seed.
  void declare_limits(CLI::App& command);
  /// Fills `plan` and `gap_limit` from the texts. Throws UsageError.
  void finish();
  /// The time limit, or `default_time` if neither a time nor a work limit is given: a work limit alone has to
  /// be deterministic.
  std::optional<double> seconds() const;
  void apply(Limits& limits) const;
  /// These options in the form of a request.
  Effort settled() const;
};

/// The steps of a plan's file. Throws InputError where they break a rule of the model.
Plan valid_plan(const Graph& graph, const PlanRecord& record, const std::string& path);

/// Returns what `run` returns; adds the file's name to an InputError of the core.
template <class Run>
auto of_file(const std::string& path, Run&& run) {
  try {
    return run();
  } catch (const UsageError&) {
    throw;
  } catch (const InputError& error) {
    throw InputError(path + ": " + error.what());
  }
}

/// Default alignment of offsets.
inline constexpr std::int64_t kCacheLine = 64;

/// A capacity for a table of buffers: as a budget, without percent. Throws UsageError.
Bytes parse_capacity(const std::string& text);

/// For a command with subcommands (each a `what`): lists them if the next word is missing or unknown.
void require_known_word(CLI::App& command, std::function<int()>& action, const std::string& what);

/// Adds `--order fixed|free`.
void declare_order(CLI::App& command, std::string& order);
OrderMode parse_order(const std::string& order);

/// "--budget-on arena".
std::string spelled_for_shell(std::string_view option, std::string_view value);
/// Adds a flag for each of `request_options`, which sets it in the request.
void declare_options(CLI::App& command, Request& request);

/// The first Ctrl-C (or SIGTERM) sets the flag, the second one kills.
const std::atomic<bool>& catch_interrupts();

}  // namespace remat::cli
