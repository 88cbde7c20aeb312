// The command line in this process: arguments and files from the input, in a folder of its own.
#include "commands.h"

#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <optional>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

#include "common.h"
#include "fuzz/one_input.h"
#include "remat/error.h"

namespace remat::fuzz {
namespace {

namespace fs = std::filesystem;

/// An input: the arguments on the first line, then file "in", then, after a line "---", file "in2".
struct Invocation {
  std::vector<std::string> arguments;
  std::string first, second;
};

/// Keeps runs short and inside the folder: no paths that leave it, and only numbers that are small or, beyond
/// 64 bits, refused.
std::string tamed(std::string argument) {
  std::replace(argument.begin(), argument.end(), '/', '_');
  constexpr std::size_t kSmall = 2, kAbsurd = 20;
  std::string kept;
  for (std::size_t at = 0; at < argument.size();) {
    std::size_t end = at;
    while (end < argument.size() && argument[end] >= '0' && argument[end] <= '9') ++end;
    const std::size_t digits = end - at;
    kept += argument.substr(at, digits > kSmall && digits < kAbsurd ? kSmall : digits);
    at = end;
    if (at < argument.size()) kept += argument[at++];
  }
  return kept;
}

bool is_long(const std::string& time) {
  try {
    return parse_seconds(time) > 0.01;
  } catch (const UsageError&) {
    return false;
  }
}

/// Every planning command gets a short time limit, where it does not name one itself.
void limit(std::vector<std::string>& arguments) {
  constexpr const char* kTime = "--time-limit";
  bool has_limit = false;
  for (std::size_t i = 0; i + 1 < arguments.size(); ++i) {
    if (arguments[i] == "--threads" && arguments[i + 1].size() > 1) arguments[i + 1].resize(1);
    if (arguments[i] != kTime) continue;
    has_limit = true;
    if (is_long(arguments[i + 1])) arguments[i + 1] = "5ms";
  }
  const std::string& command = arguments.front();
  if (!has_limit && (command == "plan" || command == "sweep" || command == "compare")) {
    arguments.insert(arguments.end(), {kTime, "5ms"});
  }
}

Invocation read(std::string_view input) {
  Invocation invocation;
  const std::size_t line = std::min(input.find('\n'), input.size());
  std::istringstream words{std::string(input.substr(0, line))};
  for (std::string word; words >> word;) invocation.arguments.push_back(tamed(word == "''" ? "" : word));
  if (invocation.arguments.size() > 40) invocation.arguments.resize(40);
  const std::string_view files = input.substr(std::min(line + 1, input.size()));
  constexpr std::string_view kBetween = "\n---\n";
  const std::size_t between = files.find(kBetween);
  invocation.first = files.substr(0, between);
  if (between != files.npos) invocation.second = files.substr(between + kBetween.size());
  return invocation;
}

/// The working folder of the process, removed at its end.
class Workplace {
 public:
  Workplace() {
    std::string name = (fs::temp_directory_path() / "remat_fuzz_XXXXXX").string();
    if (!::mkdtemp(name.data())) throw std::runtime_error("no temporary folder");
    path_ = name;
    fs::current_path(path_);
  }
  ~Workplace() {
    std::error_code ignored;
    fs::current_path("/", ignored);
    fs::remove_all(path_, ignored);
  }
  Workplace(const Workplace&) = delete;
  Workplace& operator=(const Workplace&) = delete;

  void fill(const Invocation& invocation) const {
    for (const auto& entry : fs::directory_iterator(path_)) fs::remove_all(entry.path());
    std::ofstream("in") << invocation.first;
    std::ofstream("in2") << invocation.second;
  }
  void check_no_part_is_left() const {
    for (const auto& entry : fs::recursive_directory_iterator(path_)) {
      if (entry.path().filename().string().find(".part") == std::string::npos) continue;
      throw std::logic_error("a half-written file is left: " + entry.path().filename().string());
    }
  }

 private:
  fs::path path_;
};

/// Captures what is printed while this object lives.
class Capture {
 public:
  Capture() : out_(std::cout.rdbuf(out_text_.rdbuf())), err_(std::cerr.rdbuf(err_text_.rdbuf())) {}
  ~Capture() {
    std::cout.rdbuf(out_);
    std::cerr.rdbuf(err_);
  }
  Capture(const Capture&) = delete;
  Capture& operator=(const Capture&) = delete;
  std::string err() const { return err_text_.str(); }

 private:
  std::ostringstream out_text_, err_text_;
  std::streambuf *out_, *err_;
};

void check_answer(int code, const std::string& err) {
  if (code != cli::kOk && code != cli::kFailure && code != cli::kInfeasible && code != cli::kNothingFound &&
      code != cli::kUsage) {
    throw std::logic_error("exit code " + std::to_string(code));
  }
  if (err.find("internal error") != std::string::npos) throw std::logic_error(err);
  std::istringstream lines(err);
  int messages = 0;
  for (std::string line; std::getline(lines, line);) {
    if (!line.starts_with("remat: ")) throw std::logic_error("a line without a name: " + line);
    messages += !line.starts_with("remat: warning: ");
  }
  if (messages != (code != cli::kOk)) {
    throw std::logic_error("exit code " + std::to_string(code) + " with " + std::to_string(messages) +
                           " messages: " + err);
  }
}

}  // namespace

void check_command(std::string_view input) {
  static const Workplace workplace;
  Invocation invocation = read(input);
  // `bench` becomes another program.
  if (!invocation.arguments.empty() && invocation.arguments.front() == "bench") return;
  if (!invocation.arguments.empty()) limit(invocation.arguments);
  workplace.fill(invocation);
  std::vector<char*> argv{const_cast<char*>("remat")};
  for (std::string& argument : invocation.arguments) argv.push_back(argument.data());
  const auto argc = static_cast<int>(argv.size());
  argv.push_back(nullptr);
  const Capture capture;
  const int code = cli::run_command(argc, argv.data());
  check_answer(code, capture.err());
  workplace.check_no_part_is_left();
}

}  // namespace remat::fuzz
