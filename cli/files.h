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

/// For use before a long run: throws UsageError if two outputs are the same file, under any names, InputError
/// if a folder is missing or not writable. If one output is standard output, reports go to standard error.
void prepare_outputs(const std::vector<Output>& outputs);
/// The first of these checks alone, for files in a folder that the command makes.
void require_different_files(const std::vector<Output>& outputs);
/// True if the command writes a file to standard output.
bool is_standard_output_taken();

/// Writes to a file, or to standard output. Throws InputError.
void write_output(const std::string& path, std::string_view text, FileKind kind = FileKind::kOther);
/// "standard output", or the path.
std::string output_name(const std::string& path);

}  // namespace remat::cli
