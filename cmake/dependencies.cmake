# System packages where they are installed, otherwise fetched by pinned hash.
include(FetchContent)
find_package(nlohmann_json 3.11 REQUIRED)
if(REMAT_CLI)
  find_package(CLI11 2.1 REQUIRED)
endif()
if(REMAT_TESTS)
  find_package(GTest REQUIRED)
endif()
