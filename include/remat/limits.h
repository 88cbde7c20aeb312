// Time, work and gap limits, the stop flag and progress reports, in one object that every planner asks.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "remat/export.h"
#include "remat/quantity.h"

namespace REMAT_API remat {

enum class StoppedBy { kProof, kTime, kWork, kInterrupted, kTarget, kGap };
std::string_view to_string(StoppedBy reason);

/// Sent for every improved plan, and regularly in between. `peak` and `duration` are those of the incumbent.
struct Progress {
  std::string planner;
  double seconds = 0;
  std::optional<Bytes> peak;
  std::optional<Duration> duration;
  bool within_budget = false;  ///< the incumbent may be run; always true for objective peak without a budget
};
using ProgressFn = std::function<void(const Progress&)>;

/// Wall clock, deterministic work units and an external stop. A limit once reached stays reached. Limits made
/// by `nested` stop with their parent and add their work to it. With a work limit and no time limit, plans
/// are the same on every machine. May be asked from several threads; a nested object belongs to one thread.
class Limits {
 public:
  using Clock = std::chrono::steady_clock;

  Limits() : start_(Clock::now()) {}
  Limits(const Limits&) = delete;
  Limits& operator=(const Limits&) = delete;

  /// Seconds from the construction of this object.
  Limits& set_time(double seconds);
  Limits& set_work(std::int64_t units);
  /// The requested gap, as a share of the bound: planners stop at a plan whose duration is within it.
  Limits& set_gap(double share);
  /// The flag may be set by a signal handler or another thread; it must outlive this object.
  Limits& set_stop(const std::atomic<bool>* flag);
  Limits& set_progress(ProgressFn fn);

  /// Adds `units` of work and returns whether any limit is reached. A unit is about 100 ns: code that touches
  /// k steps or edges counts about k / 32, at least 1. The clock is read only every kClockStride units.
  bool spend(std::int64_t units);
  /// Reads the clock and the stop flag now.
  bool reached();
  /// Stops all users of this object for an external reason.
  void end(StoppedBy reason) { mark(reason); }
  /// The reason of the limit reached first; nothing while none is.
  std::optional<StoppedBy> stopped_by() const;

  double seconds() const;
  std::int64_t work() const { return work_.load(std::memory_order_relaxed); }
  /// Seconds or units left; nothing if no such limit is set here or in a parent.
  std::optional<double> seconds_left() const;
  std::optional<std::int64_t> work_left() const;
  /// The outermost parent.
  const Limits& outermost() const { return parent_ ? parent_->outermost() : *this; }
  /// Of this object, else of its parent.
  std::optional<double> gap() const { return gap_ || !parent_ ? gap_ : parent_->gap(); }
  bool has_work_limit() const { return work_left().has_value(); }

  void report(const Progress& progress) const;

  /// A share in (0, 1] of the time and work that are left; the parent must outlive it.
  explicit Limits(Limits& parent, double share);

 private:
  static constexpr std::int64_t kClockStride = 256;
  bool mark(StoppedBy reason);

  Limits* parent_ = nullptr;
  Clock::time_point start_;
  std::optional<Clock::time_point> deadline_;
  std::optional<std::int64_t> work_limit_;
  std::optional<double> gap_;
  const std::atomic<bool>* stop_ = nullptr;
  ProgressFn progress_;
  std::atomic<std::int64_t> work_{0};
  std::atomic<std::int64_t> since_clock_{0};
  std::atomic<int> reason_{-1};
};

}  // namespace REMAT_API remat
