// Libraries that look at no clock for seconds at a time run on a thread of their own, which can be left
// behind.
#pragma once

#include <functional>

#include "remat/limits.h"

namespace remat {

/// What runs on the thread, and what the caller does meanwhile. `work` must own all that it touches: where
/// `limits` is reached and it does not end soon after `stop`, it goes on alone: `work_is_left_behind`
/// (remat/left_behind.h).
struct SideJob {
  std::function<void()> work;
  std::function<void()> stop;               ///< on the caller's thread, once, when the limits are reached
  std::function<void()> meanwhile = [] {};  ///< on the caller's thread, every few milliseconds
};

/// True where the work ended. Where no thread can be had, the work is done here.
bool run_beside(const SideJob& job, Limits& limits);

}  // namespace remat
