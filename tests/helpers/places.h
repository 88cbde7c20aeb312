// Paths for tests: the command line under test, test data, and the folder ../shared of a checkout.
#pragma once

#include <filesystem>
#include <string>

namespace remat::testing {

/// The program `remat` of this build.
std::string cli_path();

/// tests/data of the repository.
std::filesystem::path data_dir();

/// tools of the repository.
std::filesystem::path tools_dir();

/// The folder ../shared; tests that need it are skipped in a clone without it.
std::filesystem::path shared_dir();
/// The file of a shared graph, such as "torch_unet".
std::filesystem::path shared_graph(const std::string& name);

}  // namespace remat::testing
