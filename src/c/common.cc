#include "c/common.h"

namespace remat::c {
namespace {

thread_local std::string error_text;
thread_local const char* shown_error = "";

}  // namespace

int failed(int code, const char* message) {
  try {
    error_text = message;
    shown_error = error_text.c_str();
  } catch (const std::bad_alloc&) {
    shown_error = "out of memory";
  }
  return code;
}

}  // namespace remat::c

using remat::c::guarded;
using remat::c::require;

const char* remat_version(void) { return REMAT_VERSION; }

const char* remat_error_text(void) { return remat::c::shown_error; }

int remat_make_cancellation(remat_cancellation** cancellation) {
  return guarded([&] {
    require(cancellation, "cancellation");
    *cancellation = new remat_cancellation;
  });
}

void remat_cancel(remat_cancellation* cancellation) {
  if (cancellation) cancellation->requested.store(true, std::memory_order_relaxed);
}

void remat_free_cancellation(remat_cancellation* cancellation) { delete cancellation; }
