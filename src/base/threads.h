// Runs work on several threads.
#pragma once

#include <cstddef>
#include <exception>
#include <system_error>
#include <thread>
#include <vector>

namespace remat {

/// Calls run(0), ..., run(count - 1) in parallel, run(0) on this thread, and rethrows the first exception by
/// index. If the system starts no more threads, later calls are skipped: the others must be able to do all
/// the work.
template <class Run>
void run_threads(std::size_t count, Run&& run) {
  std::vector<std::exception_ptr> errors(count);
  const auto guarded = [&](std::size_t i) {
    try {
      run(i);
    } catch (...) {
      errors[i] = std::current_exception();
    }
  };
  {
    std::vector<std::jthread> others;
    others.reserve(count);
    try {
      for (std::size_t i = 1; i < count; ++i) others.emplace_back(guarded, i);
    } catch (const std::system_error&) {
    }
    guarded(0);
  }
  for (const auto& error : errors) {
    if (error) std::rethrow_exception(error);
  }
}

}  // namespace remat
