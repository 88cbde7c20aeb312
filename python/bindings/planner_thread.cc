#include "planner_thread.h"

#include <chrono>
#include <thread>

namespace remat::python {

constexpr std::chrono::milliseconds kPoll{50};

PlannerThread::PlannerThread() {
  limits_.set_stop(&stop_);
  limits_.set_progress([this](const Progress& progress) {
    const std::lock_guard lock(mutex_);
    queue_.push_back(progress);
    changed_.notify_one();
  });
}

void PlannerThread::run(std::function<void()> job, nb::handle progress) {
  std::exception_ptr job_fault, python_fault;
  std::thread thread([&] {
    try {
      job();
    } catch (...) {
      job_fault = std::current_exception();
    }
    const std::lock_guard lock(mutex_);
    done_ = true;
    changed_.notify_one();
  });
  for (bool ended = false; !ended;) {
    ended = wait();
    if (python_fault) continue;
    try {
      hand_over(progress);
      poll_signals();
    } catch (...) {
      python_fault = std::current_exception();
      stop_ = true;
    }
  }
  thread.join();
  if (python_fault) std::rethrow_exception(python_fault);
  if (job_fault) std::rethrow_exception(job_fault);
}

/// Waits, without the GIL, until the job ends, reports progress, or kPoll has passed. True if it has ended.
bool PlannerThread::wait() {
  nb::gil_scoped_release release;
  std::unique_lock lock(mutex_);
  changed_.wait_for(lock, kPoll, [this] { return done_ || !queue_.empty(); });
  return done_;
}

void PlannerThread::hand_over(nb::handle progress) {
  std::deque<Progress> queue;
  {
    const std::lock_guard lock(mutex_);
    queue.swap(queue_);
  }
  if (progress.is_none()) return;
  for (const Progress& p : queue) {
    progress(p.planner, p.seconds, p.peak ? nb::cast(p.peak->count()) : nb::none(),
             p.duration ? nb::cast(p.duration->count()) : nb::none(), p.within_budget);
  }
}

void PlannerThread::poll_signals() {
  if (PyErr_CheckSignals() == 0) return;
  nb::python_error error;
  if (!error.matches(PyExc_KeyboardInterrupt) || stop_) throw error;
  stop_ = true;
}

}  // namespace remat::python
