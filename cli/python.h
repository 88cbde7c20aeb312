// Commands that the Python package implements.
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace remat::cli {

/// Becomes `python -m remat.COMMAND ARGUMENTS`. Only returns by throwing InputError.
int run_python(const std::string& command, const std::vector<std::string>& arguments);

/// The standard output of `python -m remat.COMMAND ARGUMENTS`; nothing if it fails, with its reason on
/// standard error. Throws InputError if it cannot be run.
std::optional<std::string> python_output(const std::string& command,
                                         const std::vector<std::string>& arguments);

}  // namespace remat::cli
