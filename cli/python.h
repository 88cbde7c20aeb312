// Commands that the Python package carries out.
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace remat::cli {

/// Becomes `python -m remat.COMMAND ARGUMENTS`. Only returns by throwing InputError.
int run_python(const std::string& command, const std::vector<std::string>& arguments);

/// What `python -m remat.COMMAND ARGUMENTS` writes to its standard output; nothing where it fails, having
/// said why on standard error. Throws InputError where it cannot be run.
std::optional<std::string> python_output(const std::string& command,
                                         const std::vector<std::string>& arguments);

}  // namespace remat::cli
