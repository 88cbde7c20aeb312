#include "files.h"

#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <iostream>
#include <utility>

#include "common.h"
#include "remat/error.h"

namespace remat::cli {
namespace {

constexpr std::string_view kStandard = "-";

bool is_taken = false;

std::string read_input(const std::string& path, FileKind kind) {
  static bool was_read = false;
  if (path.empty()) throw UsageError("the name of the file to read is empty");
  if (path != kStandard) return read_file(path, kind);
  if (std::exchange(was_read, true)) throw UsageError("only one file can come from standard input");
  return read_file("/dev/stdin", kind);
}

std::string input_name(const std::string& path) { return path == kStandard ? "standard input" : path; }

/// Throws InputError if the folder of `path` is missing or not writable. The write itself may still fail.
void require_writable_folder(const std::string& path) {
  std::filesystem::path folder = std::filesystem::path(path).parent_path();
  if (folder.empty()) folder = ".";
  std::error_code error;
  const bool is_folder = std::filesystem::is_directory(folder, error);
  const int number = error                                        ? error.value()
                     : !is_folder                                 ? ENOTDIR
                     : ::access(folder.c_str(), W_OK | X_OK) != 0 ? errno
                                                                  : 0;
  if (number != 0) throw InputError("cannot write " + path + ": " + std::strerror(number));
}

/// The file that a path leads to, existing or not.
std::filesystem::path target_of(std::filesystem::path path) {
  constexpr int kMostLinks = 40;
  std::error_code error;
  for (int i = 0; i < kMostLinks && std::filesystem::is_symlink(path, error); ++i) {
    path = path.parent_path() / std::filesystem::read_symlink(path, error);
  }
  // A relative path that does not exist would stay relative.
  return std::filesystem::weakly_canonical(std::filesystem::absolute(path, error), error);
}

/// Devices and pipes may be named twice.
bool is_one_file(const std::string& a, const std::string& b) {
  if (a == kStandard || b == kStandard) return a == b;
  std::error_code error;
  const auto status = std::filesystem::status(a, error);
  if (std::filesystem::exists(status) && !std::filesystem::is_regular_file(status)) return false;
  if (std::filesystem::equivalent(a, b, error)) return true;
  return target_of(a) == target_of(b);
}

template <class Loaded>
Loaded warned(Loaded loaded) {
  for (const std::string& line : loaded.warnings) warn(line);
  return loaded;
}

}  // namespace

LoadedGraph load_and_warn(const std::string& path) {
  return warned(parse_graph(read_input(path, FileKind::kGraph), input_name(path)));
}

PlanRecord load_plan_and_warn(const std::string& path) {
  return warned(parse_plan(read_input(path, FileKind::kPlan), input_name(path)));
}

LayoutRecord load_layout_and_warn(const std::string& path) {
  return warned(parse_layout(read_input(path, FileKind::kLayout), input_name(path)));
}

BufferTable load_buffers_and_warn(const std::string& path) {
  return warned(parse_buffers(read_input(path, FileKind::kBuffers), input_name(path)));
}

void require_different_files(const std::vector<Output>& outputs) {
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    for (std::size_t j = 0; j < i; ++j) {
      const Output &a = outputs[j], &b = outputs[i];
      if (a.path.empty() || b.path.empty() || !is_one_file(a.path, b.path)) continue;
      throw UsageError(a.option + " and " + b.option + " are one file: " + output_name(a.path) +
                       (a.path == b.path ? "" : ", " + b.path));
    }
  }
}

void prepare_outputs(const std::vector<Output>& outputs) {
  require_different_files(outputs);
  for (const Output& output : outputs) {
    if (output.path == kStandard) {
      is_taken = true;
    } else if (!output.path.empty()) {
      require_writable_folder(output.path);
    }
  }
}

bool is_standard_output_taken() { return is_taken; }

void write_output(const std::string& path, std::string_view text, FileKind kind) {
  if (path != kStandard) return write_file(path, text, kind);
  std::cout << text << std::flush;
}

std::string output_name(const std::string& path) { return path == kStandard ? "standard output" : path; }

}  // namespace remat::cli
