// Commands that the Python package carries out.
#pragma once

#include <string>
#include <vector>

namespace remat::cli {

/// Becomes `python -m remat.COMMAND ARGUMENTS`. Only returns by throwing InputError.
int run_python(const std::string& command, const std::vector<std::string>& arguments);

}  // namespace remat::cli
