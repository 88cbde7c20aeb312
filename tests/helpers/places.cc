#include "helpers/places.h"

namespace remat::testing {

std::string cli_path() { return REMAT_CLI_PATH; }

std::filesystem::path data_dir() { return REMAT_TEST_DATA_DIR; }

std::filesystem::path tools_dir() { return data_dir() / ".." / ".." / "tools"; }

std::filesystem::path shared_dir() { return REMAT_SHARED_DIR; }

std::filesystem::path shared_graph(const std::string& name) {
  return shared_dir() / "instances" / (name + ".json");
}

}  // namespace remat::testing
