# C++ libraries: the installed package where there is one, otherwise the upstream release by pinned hash.
include(FetchContent)

# A macro, because find_package makes its targets visible in the caller's scope only.
macro(remat_dependency name version url sha256 debian)
  string(TOUPPER ${name} remat_upper)
  if(FETCHCONTENT_SOURCE_DIR_${remat_upper})
    FetchContent_Declare(${name} SYSTEM)
    FetchContent_MakeAvailable(${name})
  else()
    find_package(${name} ${version} QUIET)
    if(${name}_FOUND)
      message(STATUS "${name} ${${name}_VERSION}: installed")
    else()
      remat_fetch(${name} ${url} ${sha256} ${debian})
    endif()
  endif()
endmacro()

function(remat_fetch name url sha256 debian)
  get_filename_component(file ${url} NAME)
  set(archive ${PROJECT_BINARY_DIR}/_deps/${name}-${file})
  message(NOTICE "${name}: not installed, fetching ${url}")
  if(NOT EXISTS ${archive})
    file(DOWNLOAD ${url} ${archive}.part STATUS status TLS_VERIFY ON TIMEOUT 300 INACTIVITY_TIMEOUT 30)
    list(GET status 0 failed)
    list(GET status 1 reason)
    if(failed)
      file(REMOVE ${archive}.part)
      message(FATAL_ERROR "${name} is not installed, and fetching ${url} failed: ${reason}. Install it "
        "(Debian, Ubuntu: apt-get install ${debian}), or unpack that archive and pass "
        "-DFETCHCONTENT_SOURCE_DIR_${remat_upper}=FOLDER.")
    endif()
    file(RENAME ${archive}.part ${archive})
  endif()
  FetchContent_Declare(${name} URL ${archive} URL_HASH SHA256=${sha256} DOWNLOAD_EXTRACT_TIMESTAMP FALSE SYSTEM)
  FetchContent_MakeAvailable(${name})
endfunction()

set(INSTALL_GTEST OFF)
set(BENCHMARK_ENABLE_TESTING OFF)
set(BENCHMARK_ENABLE_INSTALL OFF)

remat_dependency(nlohmann_json 3.11
  https://github.com/nlohmann/json/releases/download/v3.11.3/json.tar.xz
  d6c65aca6b1ed68e7a182f4757257b107ae403032760ed6ef121c9d55e81757d nlohmann-json3-dev)
if(REMAT_CLI)
  remat_dependency(CLI11 2.1
    https://github.com/CLIUtils/CLI11/archive/refs/tags/v2.4.2.tar.gz
    f2d893a65c3b1324c50d4e682c0cdc021dd0477ae2c048544f39eed6654b699a libcli11-dev)
endif()
if(REMAT_TESTS)
  remat_dependency(GTest 1.10
    https://github.com/google/googletest/archive/refs/tags/v1.14.0.tar.gz
    8ad598c73ad796e0d8280b082cebd82a630d73e73cd3c70057938a6501bba5d7 libgtest-dev)
endif()
if(REMAT_BENCH)
  remat_dependency(benchmark 1.7
    https://github.com/google/benchmark/archive/refs/tags/v1.8.3.tar.gz
    6bc180a57d23d4d9515519f92b0c83d61b05b5bab188961f36ac7b06b0d9e9ce libbenchmark-dev)
endif()
