// Runs libraries that may ignore limits for seconds on a separate thread, which can be abandoned.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <thread>

#include "remat/limits.h"

namespace remat {

/// The work of the thread, and how to stop it. `work` must own all that it touches: if it does not end soon
/// after `stop`, it goes on after the call (`work_is_left_behind`, remat/left_behind.h).
struct SideJob {
  std::function<void()> work;
  std::function<void()> stop;  ///< on the caller's thread, once, when the limits are reached
};

/// True if the work ended. If no thread can be started, does the work on this one.
bool run_beside(const SideJob& job, Limits& limits);

/// The thread. The destructor abandons work that has not ended.
class SideThread {
 public:
  /// How long a caller waits after its limits: a quarter of the overrun allowed.
  static constexpr std::chrono::milliseconds kGrace{40};

  /// Throws std::system_error if no thread can be started.
  explicit SideThread(std::function<void()> work);
  ~SideThread();
  SideThread(const SideThread&) = delete;
  SideThread& operator=(const SideThread&) = delete;

  bool ended_within(std::chrono::milliseconds time) const;
  /// Waits until the work has ended or pauses (`is_paused`, polled every few milliseconds). Calls `stop` once
  /// when the limits are reached; returns false if the work neither ends nor pauses soon after.
  bool wait(Limits& limits, const std::function<void()>& stop, const std::function<bool()>& is_paused) const;
  /// Waits for the end. Throws what the work threw.
  void join();

 private:
  class Ticket;
  std::shared_ptr<Ticket> ticket_;
  std::thread thread_;
};

}  // namespace remat
