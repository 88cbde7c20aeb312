// OR-tools' CP-SAT, loaded at run time where it is installed: Remat neither links nor ships it.
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace remat::cpsat {

/// The C functions of libortools. Requests and answers are serialised protobuf messages; the answer is
/// allocated with malloc and belongs to the caller.
struct Library {
  void* (*new_env)() = nullptr;
  void (*destroy_env)(void* env) = nullptr;
  /// May be called from any thread, before or during a solve; it stays stopped.
  void (*stop_search)(void* env) = nullptr;
  void (*solve)(void* env, const void* model, int model_size, const void* parameters, int parameters_size,
                void** response, int* response_size) = nullptr;
  std::string path;
};

/// The library, or null where none was found or none of those found can be loaded. Looks once, in this
/// order, and takes the first that loads:
///   1. the environment variable REMAT_ORTOOLS (file or folder; where it is set, nothing else is tried);
///   2. the Python environment that holds this program or module: `ortools/.libs` beside the folder of the
///      module, and `lib/python3*/site-packages` in the program's parent folders and in their `.venv`;
///   3. the active virtual environment (VIRTUAL_ENV);
///   4. the loader's own search path.
const Library* library();

/// Nothing if the library is loaded; else one line: how to install it, or why the one found does not load.
std::optional<std::string> unavailable();

}  // namespace remat::cpsat
