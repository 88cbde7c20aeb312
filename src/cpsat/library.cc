#include "cpsat/library.h"

#include <dlfcn.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>

namespace remat::cpsat {
namespace {

namespace fs = std::filesystem;

constexpr const char* kFileName = "libortools.so.9";

/// The file itself, or the places in a folder where the package keeps it.
void add_candidates(const fs::path& path, std::vector<fs::path>& into) {
  std::error_code ignored;
  if (!fs::is_directory(path, ignored)) {
    into.push_back(path);
    return;
  }
  for (const fs::path& file :
       {path / kFileName, path / ".libs" / kFileName, path / "ortools" / ".libs" / kFileName}) {
    if (fs::exists(file, ignored)) into.push_back(file);
  }
}

/// lib/python3*/site-packages of a Python environment, newest version last in name order.
void add_environment(const fs::path& root, std::vector<fs::path>& into) {
  std::error_code ignored;
  std::vector<fs::path> found;
  for (fs::directory_iterator at(root / "lib", ignored), end; !ignored && at != end; at.increment(ignored)) {
    if (at->path().filename().string().starts_with("python3")) found.push_back(at->path() / "site-packages");
  }
  std::sort(found.begin(), found.end());
  for (const fs::path& folder : found) {
    if (fs::is_directory(folder, ignored)) add_candidates(folder / "ortools", into);
  }
}

/// The shared object or program that holds this function.
std::optional<fs::path> own_file() {
  Dl_info info;
  if (dladdr(reinterpret_cast<const void*>(&own_file), &info) == 0 || !info.dli_fname) return std::nullopt;
  std::error_code error;
  const fs::path path = fs::canonical(info.dli_fname, error);
  if (error) return std::nullopt;
  return path;
}

std::vector<fs::path> candidates() {
  std::vector<fs::path> files;
  if (const char* variable = std::getenv("REMAT_ORTOOLS"); variable && *variable) {
    add_candidates(variable, files);
    if (files.empty()) files.emplace_back(fs::path(variable) / kFileName);
    return files;
  }
  std::error_code ignored;
  const auto add_existing = [&](const fs::path& file) {
    if (fs::exists(file, ignored)) files.push_back(file);
  };
  constexpr int kParents = 4;
  for (std::optional<fs::path> start :
       {own_file(), std::optional(fs::read_symlink("/proc/self/exe", ignored))}) {
    if (!start || start->empty()) continue;
    fs::path folder = start->parent_path();
    add_existing(folder.parent_path() / "ortools" / ".libs" / kFileName);
    for (int up = 0; up < kParents && folder.has_relative_path(); ++up, folder = folder.parent_path()) {
      add_environment(folder, files);
      add_environment(folder / ".venv", files);
    }
  }
  if (const char* active = std::getenv("VIRTUAL_ENV"); active && *active) add_environment(active, files);
  files.emplace_back(kFileName);
  return files;
}

template <class Function>
bool bind(void* handle, const char* name, Function& into) {
  into = reinterpret_cast<Function>(dlsym(handle, name));
  return into != nullptr;
}

struct Found {
  std::optional<Library> library;
  std::string failure;  ///< of a file that is there and does not load
};

Found look() {
  Found outcome;
  for (const fs::path& file : candidates()) {
    void* handle = dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (!handle) {
      if (file.has_parent_path()) outcome.failure = dlerror();
      continue;
    }
    Library found;
    found.path = file.string();
    if (bind(handle, "SolveCpNewEnv", found.new_env) &&
        bind(handle, "SolveCpDestroyEnv", found.destroy_env) &&
        bind(handle, "SolveCpStopSearch", found.stop_search) &&
        bind(handle, "SolveCpInterruptible", found.solve)) {
      outcome.library = found;
      return outcome;  // the handle stays open as long as the process runs
    }
    outcome.failure = file.string() + " has no C interface to CP-SAT; OR-tools 9.15 has";
    dlclose(handle);
  }
  return outcome;
}

const Found& found() {
  static const Found outcome = look();
  return outcome;
}

}  // namespace

const Library* library() { return found().library ? &*found().library : nullptr; }

std::optional<std::string> unavailable() {
  if (library()) return std::nullopt;
  std::string text =
      "CP-SAT is not installed: `pip install ortools==9.15.6755`, or set REMAT_ORTOOLS to the folder of that "
      "package";
  if (!found().failure.empty()) text += " (tried: " + found().failure + ")";
  return text;
}

}  // namespace remat::cpsat
