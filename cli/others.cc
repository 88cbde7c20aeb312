#include "others.h"

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <thread>

#include "people.h"
#include "remat/error.h"
#include "remat/plan.h"

namespace remat::cli {
namespace {

std::pair<std::string, std::string> name_and_text(const std::string& option, const std::string& given) {
  const std::size_t equals = given.find('=');
  if (equals == std::string::npos || equals == 0 || equals + 1 == given.size()) {
    throw UsageError(option + " '" + given + "' is not NAME=" + (option == "--plan" ? "FILE" : "COMMAND"));
  }
  return {given.substr(0, equals), given.substr(equals + 1)};
}

void require_new_name(const std::string& name, const std::vector<OtherPlan>& others) {
  if (name.find('/') != std::string::npos) throw UsageError("the name '" + name + "' has a '/'");
  const auto planners = remat::planners();
  if (std::ranges::any_of(planners, [&](const PlannerInfo& p) { return p.name == name; })) {
    throw UsageError("'" + name + "' is the name of a planner: give the plan another one");
  }
  if (std::ranges::any_of(others, [&](const OtherPlan& o) { return o.name == name; })) {
    throw UsageError("two plans have the name '" + name + "'");
  }
}

/// Quoted as one word for a shell.
std::string quoted(const std::string& text) {
  std::string word = "'";
  for (const char c : text) word += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return word + "'";
}

std::string filled(std::string command, const std::string& key, const std::string& value) {
  for (std::size_t at = 0; (at = command.find(key, at)) != std::string::npos; at += value.size()) {
    command.replace(at, key.size(), value);
  }
  return command;
}

/// A temporary folder for a command's output, deleted at the end.
class Folder {
 public:
  Folder() {
    std::string pattern = (std::filesystem::temp_directory_path() / "remat-XXXXXX").string();
    if (::mkdtemp(pattern.data()) == nullptr) {
      throw InputError("cannot create " + pattern + ": " + std::strerror(errno));
    }
    path_ = pattern;
  }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  ~Folder() {
    std::error_code error;
    std::filesystem::remove_all(path_, error);
  }
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

/// Starts a command with a shell in its own process group, so that its child processes can be killed with it.
/// Its output goes to standard error; its input is empty: a background group must not read the terminal.
pid_t start_shell(const std::string& command) {
  constexpr int kCannotRun = 127;
  const pid_t child = ::fork();
  if (child != 0) {
    if (child > 0) ::setpgid(child, child);  // in parent and child, whichever is first
    return child;
  }
  ::setpgid(0, 0);
  const int nothing = ::open("/dev/null", O_RDONLY);
  if (nothing >= 0) ::dup2(nothing, STDIN_FILENO);
  ::dup2(STDERR_FILENO, STDOUT_FILENO);
  ::execl("/bin/sh", "sh", "-c", command.c_str(), nullptr);
  ::_exit(kCannotRun);
}

/// Returns why a command failed, or nothing.
std::optional<std::string> run_shell(const std::string& command, double limit) {
  constexpr auto kPoll = std::chrono::milliseconds(10);
  const pid_t child = start_shell(command);
  if (child < 0) return std::string("cannot be run: ") + std::strerror(errno);
  const Limits clock;
  int status = 0;
  std::optional<std::string> ended;
  while (::waitpid(child, &status, WNOHANG) == 0) {
    if (catch_interrupts()) ended = "interrupted";
    if (clock.seconds() >= limit) ended = "ended at its limit of " + format_seconds(limit) + " (--run-limit)";
    if (ended) {
      ::kill(-child, SIGKILL);
      ::waitpid(child, &status, 0);
      return ended;
    }
    std::this_thread::sleep_for(kPoll);
  }
  if (WIFSIGNALED(status)) return "the command was ended by signal " + std::to_string(WTERMSIG(status));
  if (WEXITSTATUS(status) != 0) return "the command ended with " + std::to_string(WEXITSTATUS(status));
  return std::nullopt;
}

OtherResult judge_file(const Problem& problem, const std::string& name, const std::string& file) {
  const PlanRecord record = load_plan_and_warn(file);
  if (const auto violation = validate(*problem.graph, record.steps, problem.order, std::nullopt,
                                      record.copies, problem.host ? &*problem.host : nullptr)) {
    return {std::nullopt, "not valid: " + violation->message};
  }
  const auto given = [&record](const Problem&, Limits&) {
    PlanResult result;
    result.plan = recorded_plan(record);
    return result;
  };
  Limits limits;
  return {make_plan_with(problem, name, given, limits), ""};
}

}  // namespace

std::vector<OtherPlan> parse_other_plans(const std::vector<std::string>& files,
                                         const std::vector<std::string>& commands) {
  std::vector<OtherPlan> others;
  for (const std::string& given : files) {
    auto [name, file] = name_and_text("--plan", given);
    require_new_name(name, others);
    others.push_back({name, file, ""});
  }
  for (const std::string& given : commands) {
    auto [name, command] = name_and_text("--run", given);
    require_new_name(name, others);
    if (command.find("{out}") == std::string::npos) {
      throw UsageError("--run '" + given + "' has no {out}, the file for its plan");
    }
    others.push_back({name, "", command});
  }
  return others;
}

OtherResult judge_other_plan(const Problem& problem, const OtherPlan& other, const std::string& graph_file,
                             double run_limit) {
  try {
    if (!other.file.empty()) return judge_file(problem, other.name, other.file);
    const Folder folder;
    const std::string out = folder.path() / "plan.json";
    std::string command = filled(other.command, "{graph}", quoted(graph_file));
    command = filled(command, "{budget}", std::to_string(problem.budget.count()));
    command = filled(command, "{out}", quoted(out));
    const Limits clock;
    if (const auto failure = run_shell(command, run_limit)) return {std::nullopt, *failure};
    const double seconds = clock.seconds();
    if (!std::filesystem::exists(out)) return {std::nullopt, "the command wrote no plan"};
    OtherResult judged = judge_file(problem, other.name, out);
    if (judged.result) judged.result->seconds = seconds;
    return judged;
  } catch (const InputError& error) {
    return {std::nullopt, error.what()};
  }
}

}  // namespace remat::cli
