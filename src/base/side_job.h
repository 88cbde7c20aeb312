// Libraries that look at no clock for seconds at a time run on a thread of their own, which can be left
// behind.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <thread>

#include "remat/limits.h"

namespace remat {

/// What runs on the thread, and how to stop it. `work` must own all that it touches: where
/// `limits` is reached and it does not end soon after `stop`, it goes on alone: `work_is_left_behind`
/// (remat/left_behind.h).
struct SideJob {
  std::function<void()> work;
  std::function<void()> stop;  ///< on the caller's thread, once, when the limits are reached
};

/// True where the work ended. Where no thread can be had, the work is done here.
bool run_beside(const SideJob& job, Limits& limits);

/// The thread itself; what has not ended when this goes is left behind.
class SideThread {
 public:
  /// How long a caller waits after its limits: a quarter of what one may be overrun.
  static constexpr std::chrono::milliseconds kGrace{40};

  /// Throws std::system_error where no thread can be had.
  explicit SideThread(std::function<void()> work);
  ~SideThread();
  SideThread(const SideThread&) = delete;
  SideThread& operator=(const SideThread&) = delete;

  bool ended_within(std::chrono::milliseconds time) const;
  /// Until the work has ended or `rests`, asked every few milliseconds, says that it waits itself. `stop` is
  /// called once, when the limits are reached; false where the work does neither soon after.
  bool wait(Limits& limits, const std::function<void()>& stop, const std::function<bool()>& rests) const;
  /// Waits for the end. Throws what the work threw.
  void join();

 private:
  class Ticket;
  std::shared_ptr<Ticket> ticket_;
  std::thread thread_;
};

}  // namespace remat
