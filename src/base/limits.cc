#include "remat/limits.h"

#include <algorithm>
#include <array>

#include "base/numbers.h"
#include "remat/check.h"

namespace remat {

std::string_view to_string(StoppedBy reason) {
  static constexpr std::array<std::string_view, 6> kNames{"proof",       "time",   "work",
                                                          "interrupted", "target", "gap"};
  return kNames[at(reason)];
}

Limits::Limits(Limits& parent, double share) : parent_(&parent), start_(Clock::now()) {
  REMAT_ASSERT(share > 0 && share <= 1, share);
  if (const auto left = parent.seconds_left()) set_time(*left * share);
  if (const auto left = parent.work_left()) set_work(static_cast<std::int64_t>(real(*left) * share));
}

Limits& Limits::set_time(double seconds) {
  // A year stands for "no limit" and keeps the clock's arithmetic inside its range.
  const double capped = std::clamp(seconds, 0.0, 365.0 * 24 * 3600);
  deadline_ = start_ + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(capped));
  return *this;
}
Limits& Limits::set_work(std::int64_t units) {
  work_limit_ = units;
  return *this;
}
Limits& Limits::set_gap(double share) {
  gap_ = share;
  return *this;
}
Limits& Limits::set_stop(const std::atomic<bool>* flag) {
  stop_ = flag;
  return *this;
}
Limits& Limits::set_progress(ProgressFn fn) {
  progress_ = std::move(fn);
  return *this;
}

bool Limits::mark(StoppedBy reason) {
  int none = -1;
  reason_.compare_exchange_strong(none, static_cast<int>(reason));
  return true;
}

bool Limits::spend(std::int64_t units) {
  REMAT_ASSERT(units >= 0, units);
  if (reason_.load(std::memory_order_relaxed) >= 0) return true;
  const std::int64_t work = work_.fetch_add(units, std::memory_order_relaxed) + units;
  const bool parent_reached = parent_ && parent_->spend(units);
  if (work_limit_ && work >= *work_limit_) return mark(StoppedBy::kWork);
  if (parent_reached) return mark(*parent_->stopped_by());
  const std::int64_t since = since_clock_.fetch_add(units, std::memory_order_relaxed) + units;
  if (since < kClockStride) return false;
  since_clock_.store(0, std::memory_order_relaxed);
  return reached();
}

bool Limits::reached() {
  if (reason_.load(std::memory_order_relaxed) >= 0) return true;
  if (stop_ && stop_->load(std::memory_order_relaxed)) return mark(StoppedBy::kInterrupted);
  if (work_limit_ && work() >= *work_limit_) return mark(StoppedBy::kWork);
  if (deadline_ && Clock::now() >= *deadline_) return mark(StoppedBy::kTime);
  if (parent_ && parent_->reached()) return mark(*parent_->stopped_by());
  return false;
}

std::optional<StoppedBy> Limits::stopped_by() const {
  const int reason = reason_.load(std::memory_order_relaxed);
  if (reason < 0) return std::nullopt;
  return static_cast<StoppedBy>(reason);
}

double Limits::seconds() const { return std::chrono::duration<double>(Clock::now() - start_).count(); }

namespace {

template <class T>
std::optional<T> smaller(std::optional<T> a, std::optional<T> b) {
  if (a && b) return std::min(*a, *b);
  return a ? a : b;
}

}  // namespace

std::optional<double> Limits::seconds_left() const {
  std::optional<double> own;
  if (deadline_) own = std::max(0.0, std::chrono::duration<double>(*deadline_ - Clock::now()).count());
  return parent_ ? smaller(own, parent_->seconds_left()) : own;
}

std::optional<std::int64_t> Limits::work_left() const {
  std::optional<std::int64_t> own;
  if (work_limit_) own = std::max<std::int64_t>(0, *work_limit_ - work());
  return parent_ ? smaller(own, parent_->work_left()) : own;
}

void Limits::report(const Progress& progress) const {
  if (progress_) progress_(progress);
  if (parent_) parent_->report(progress);
}

}  // namespace remat
