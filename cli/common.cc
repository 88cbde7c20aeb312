#include "common.h"

#include <algorithm>
#include <array>
#include <csignal>
#include <cstdio>
#include <filesystem>
#include <iostream>
#include <limits>
#include <thread>
#include <utility>

#include "remat/error.h"
#include "remat/words.h"

namespace remat::cli {

std::string one_line(std::string text) {
  for (char& c : text) {
    if (static_cast<unsigned char>(c) < ' ' || c == 0x7f) c = ' ';
  }
  return text;
}

void warn(const std::string& message) { std::cerr << "remat: warning: " << one_line(message) << "\n"; }

std::string percent(double ratio) {
  std::array<char, 64> text{};
  std::snprintf(text.data(), text.size(), "%.4g %%", 100 * ratio);
  return text.data();
}

CLI::Option* add_output(CLI::App& command, const std::string& names, std::string& into,
                        const std::string& description) {
  return command.add_option(names, into, description)->check([names](const std::string& path) {
    return path.empty() ? std::string("the name of the file or folder is empty") : std::string();
  });
}

void create_folder(const std::string& path) {
  std::error_code error;
  std::filesystem::create_directories(path, error);
  if (error) throw InputError("cannot create " + path + ": " + error.message());
}

std::size_t count_edges(const Graph& graph) {
  std::size_t edges = 0;
  for (OpId op : graph.ops()) edges += predecessors(graph, op).size();
  return edges;
}

std::map<std::string, std::string> parse_set(const std::vector<std::string>& texts) {
  std::map<std::string, std::string> set;
  for (const std::string& one : texts) {
    const auto equals = one.find('=');
    if (equals == std::string::npos || equals == 0) throw UsageError("--set '" + one + "' is not KEY=VALUE");
    set[one.substr(0, equals)] = one.substr(equals + 1);
  }
  return set;
}

void EffortOptions::declare_limits(CLI::App& command) {
  command
      .add_option("--time-limit", time_limit,
                  "wall clock: 10s, 500ms, 2m, 1h (default: " + default_time + ")")
      ->type_name("TIME");
  constexpr auto kMostWork = std::numeric_limits<std::int64_t>::max();
  constexpr auto kLastSeed = std::numeric_limits<std::uint64_t>::max();
  add_whole(command, "--work-limit", work_limit, std::int64_t{0}, kMostWork,
            "deterministic work units; alone it replaces the default time limit");
  add_whole(command, "--seed", plan.seed, std::uint64_t{0}, kLastSeed,
            "seed of everything random (default: 0)");
}

void EffortOptions::declare(CLI::App& command) {
  declare_limits(command);
  command
      .add_option("--gap", gap,
                  "stop once the plan is proved this close to the fastest; 0: stop only at the limits "
                  "(default: 0.01%)")
      ->type_name("P%");
  add_whole(command, "--threads", plan.threads, 0, 1024, "threads, 0 for all (default: 1)");
  command.add_option("--set", set, "an option of the planner, may be repeated")
      ->type_name("KEY=VALUE")
      ->take_all();
}

void EffortOptions::finish() {
  if (plan.threads == 0) plan.threads = std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
  plan.set = parse_set(set);
  if (time_limit) parse_seconds(*time_limit);
  gap_limit = parse_gap(gap);
}

std::optional<double> EffortOptions::seconds() const {
  if (time_limit) return parse_seconds(*time_limit);
  return work_limit ? std::nullopt : std::optional(parse_seconds(default_time));
}

void EffortOptions::apply(Limits& limits) const { settled().apply(limits); }

Effort EffortOptions::settled() const { return {plan, seconds(), work_limit, gap_limit}; }

Plan valid_plan(const Graph& graph, const PlanRecord& record, const std::string& path) {
  if (const auto violation = validate(graph, record.steps, OrderMode::kFree, std::nullopt, record.copies)) {
    throw InputError(path + ": " + violation->message);
  }
  return recorded_plan(record);
}

Bytes parse_capacity(const std::string& text) {
  if (text.ends_with('%')) throw UsageError("a capacity in percent needs a graph and its plan");
  return parse_budget(text, Bytes());
}

void require_known_word(CLI::App& command, std::function<int()>& action, const std::string& what) {
  const auto refuse = [&command, what]() -> int {
    std::vector<std::string> known;
    for (const CLI::App* one : command.get_subcommands(nullptr)) known.push_back(one->get_name());
    const std::vector<std::string> rest = command.remaining();
    if (rest.empty()) throw UsageError(command.get_name() + " needs a " + what + ": " + listed(known));
    throw UsageError(unknown_word(what, rest.front(), known));
  };
  // Without this the error for an unknown word would be "a subcommand is required".
  command.require_subcommand(0, 1);
  command.allow_extras();
  command.callback([&command, &action, refuse] {
    if (command.get_subcommands().empty()) action = refuse;
  });
}

void take_one_of(CLI::Option& option, const std::vector<std::string>& words) {
  option.type_name("{" + listed(words, ",") + "}");
  const auto refusal = [words](const std::string& word) -> std::string {
    if (std::ranges::find(words, word) != words.end()) return "";
    return "'" + word + "' is none of " + listed(words) + did_you_mean(word, words);
  };
  option.check(CLI::Validator([refusal](std::string& word) { return refusal(word); }, ""));
}

void declare_order(CLI::App& command, std::string& order) {
  take_one_of(*command.add_option(
                  "--order", order,
                  "fixed: first runs follow the graph's order; free: any valid order (default: fixed)"),
              {"fixed", "free"});
}

OrderMode parse_order(const std::string& order) {
  return order == "free" ? OrderMode::kFree : OrderMode::kFixed;
}

std::string spelled_for_shell(std::string_view option, std::string_view value) {
  std::string flag = "--" + (option == "alignment" ? "align" : std::string(option));
  std::ranges::replace(flag, '_', '-');
  return value.empty() ? flag : flag + " " + std::string(value);
}

void declare_options(CLI::App& command, Request& request) {
  for (const OptionInfo& option : request_options()) {
    const auto set = [&request, name = option.name](const std::string& text) {
      try {
        set_option(request, name, text, spelled_for_shell);
      } catch (const UsageError& error) {
        throw CLI::ValidationError(error.what());
      }
    };
    CLI::Option* flag = command.add_option_function<std::string>(
        spelled_for_shell(option.name, ""), set,
        option.description + " (default: " + option.default_value + ")");
    const bool is_number = option.type == OptionType::kInteger || option.type == OptionType::kNumber;
    flag->type_name(is_number ? "N" : "TEXT");
    if (option.type == OptionType::kChoice) take_one_of(*flag, option.choices);
  }
}

namespace {

std::atomic<bool> interrupted{false};
static_assert(std::atomic<bool>::is_always_lock_free, "a signal handler sets it");

extern "C" void remember_interrupt(int) { interrupted.store(true, std::memory_order_relaxed); }

}  // namespace

const std::atomic<bool>& catch_interrupts() {
  static bool is_caught = false;
  if (std::exchange(is_caught, true)) return interrupted;
  struct sigaction action{};
  action.sa_handler = remember_interrupt;
  // One signal is caught; the next one meets the default action and kills.
  action.sa_flags = static_cast<int>(SA_RESETHAND) | SA_RESTART;
  sigemptyset(&action.sa_mask);
  for (int signal : {SIGINT, SIGTERM}) ::sigaction(signal, &action, nullptr);
  return interrupted;
}

}  // namespace remat::cli
