// Long work on a thread of its own, so that Python goes on, hears of progress and can stop it.
#pragma once

#include <atomic>
#include <condition_variable>
#include <deque>
#include <exception>
#include <functional>
#include <mutex>

#include "bindings.h"

namespace remat::python {

/// Runs one job; use it once. The job must not touch Python: it runs without the GIL. The calling thread
/// holds the GIL whenever Python code runs: it hands over progress, in order, and asks for signals every
/// kPoll.
class PlannerThread {
 public:
  PlannerThread();
  /// What the job is to ask and to report to.
  Limits& limits() { return limits_; }
  /// Until the job ends. What the job throws, and what `progress` or a signal handler raises, comes out of
  /// here, always after the job has ended. The first Ctrl-C only stops `limits`; a second one is raised.
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
