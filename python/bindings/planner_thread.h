// Runs long work on a separate thread, so that Python stays responsive, receives progress and can stop it.
#pragma once

#include <atomic>
#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>

#include "bindings.h"

namespace remat::python {

/// Runs one job; use it once. The job runs without the GIL and must not touch Python. The calling thread
/// holds the GIL whenever Python code runs: it calls `progress`, in order, and checks for signals every
/// kPoll.
class PlannerThread {
 public:
  PlannerThread();
  /// The limits that the job has to use.
  Limits& limits() { return limits_; }
  /// Returns when the job has ended. Rethrows, only then, what the job, `progress` or a signal handler threw.
  /// The first Ctrl-C only stops `limits`; a second one is raised.
  void run(std::function<void()> job, nb::handle progress);

 private:
  bool wait();
  void hand_over(nb::handle progress);
  void poll_signals();

  std::atomic<bool> stop_{false};
  Limits limits_;
  std::mutex mutex_;  // guards queue_ and done_
  std::condition_variable changed_;
  std::deque<Progress> queue_;
  bool done_ = false;
};

}  // namespace remat::python
