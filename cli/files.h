// The files that a command reads and writes. `-` is standard input or standard output.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "remat/io.h"
#include "remat/layout_io.h"

namespace remat::cli {

/// Read a file and print the reader's warnings. Throw UsageError where standard input was read already.
LoadedGraph load_and_warn(const std::string& path);
PlanRecord load_plan_and_warn(const std::string& path);
LayoutRecord load_layout_and_warn(const std::string& path);
BufferTable load_buffers_and_warn(const std::string& path);

/// A file that a command is to write; nothing where `path` is empty.
struct Output {
  std::string option;  ///< that names it, for messages
  std::string path;
};

/// Asked before a long run: throws UsageError where two outputs are one file, under whatever names,
/// InputError where a folder is missing or closed. Where one of them is standard output, reports go to
/// standard error.
void prepare_outputs(const std::vector<Output>& outputs);
/// The same question about files in a folder of the command's own.
void require_different_files(const std::vector<Output>& outputs);
/// A file of the command goes to standard output.
bool is_standard_output_taken();

/// Writes to a file, or to standard output. Throws InputError.
void write_output(const std::string& path, std::string_view text, FileKind kind = FileKind::kOther);
/// "standard output", or the path.
std::string output_name(const std::string& path);

}  // namespace remat::cli
