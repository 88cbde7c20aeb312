#include "base/side_job.h"

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdlib>
#include <exception>
#include <memory>
#include <mutex>
#include <new>
#include <optional>
#include <system_error>
#include <thread>
#include <utility>

#include "remat/left_behind.h"

namespace remat {
namespace {

struct Done {
  std::mutex mutex;
  std::condition_variable changed;
  bool ended = false;
  std::exception_ptr error;
};

/// Abandoned work. Never destroyed: its threads may outlive all static objects.
struct LeftBehind {
  std::mutex mutex;
  std::condition_variable changed;
  int count = 0;
};
LeftBehind& left_behind() {
  // Static memory: a thread that ends for lack of memory comes here, and must not throw.
  alignas(LeftBehind) static std::byte room[sizeof(LeftBehind)];
  static LeftBehind* all = new (room) LeftBehind;
  return *all;
}

void wait_at_exit() {
  LeftBehind& all = left_behind();
  std::unique_lock lock(all.mutex);
  all.changed.wait(lock, [&] { return all.count == 0; });
}

}  // namespace

/// Shared with the thread, which sets it when done, so that the thread can be abandoned without a handle.
class SideThread::Ticket {
 public:
  void leave() {
    std::atexit(wait_at_exit);  // each time, to run before handlers that libraries registered meanwhile
    LeftBehind& all = left_behind();
    const std::scoped_lock lock(all.mutex, done.mutex);
    if (done.ended) return;
    is_left_ = true;
    ++all.count;
  }
  void end(std::exception_ptr error) {
    LeftBehind& all = left_behind();
    const std::scoped_lock lock(all.mutex, done.mutex);
    done.ended = true;
    done.error = std::move(error);
    done.changed.notify_one();
    if (is_left_ && --all.count == 0) all.changed.notify_all();
  }
  Done done;

 private:
  bool is_left_ = false;
};

SideThread::SideThread(std::function<void()> work) : ticket_(std::make_shared<Ticket>()) {
  thread_ = std::thread([work = std::move(work), ticket = ticket_]() mutable {
    std::exception_ptr error;
    try {
      work();
    } catch (...) {
      error = std::current_exception();
    }
    work = nullptr;  // releases what it owns before it reports its end
    ticket->end(std::move(error));
  });
}

SideThread::~SideThread() {
  if (!thread_.joinable()) return;
  ticket_->leave();
  thread_.detach();
}

bool SideThread::ended_within(std::chrono::milliseconds time) const {
  std::unique_lock lock(ticket_->done.mutex);
  return ticket_->done.changed.wait_for(lock, time, [&] { return ticket_->done.ended; });
}

bool SideThread::wait(Limits& limits, const std::function<void()>& stop,
                      const std::function<bool()>& is_paused) const {
  constexpr std::chrono::milliseconds kLook{5};
  std::optional<std::chrono::steady_clock::time_point> stopped;
  while (!ended_within(kLook) && !is_paused()) {
    const auto now = std::chrono::steady_clock::now();
    if (!stopped && limits.reached()) {
      stop();
      stopped = now;
    }
    if (stopped && now - *stopped > kGrace) return false;
  }
  return true;
}

void SideThread::join() {
  thread_.join();
  if (ticket_->done.error) std::rethrow_exception(ticket_->done.error);
}

bool run_beside(const SideJob& job, Limits& limits) {
  std::optional<SideThread> thread;
  try {
    thread.emplace(job.work);
  } catch (const std::system_error&) {
    job.work();
    return true;
  }
  if (!thread->wait(limits, job.stop, [] { return false; })) return false;
  thread->join();
  return true;
}

bool work_is_left_behind() {
  LeftBehind& all = left_behind();
  const std::scoped_lock lock(all.mutex);
  return all.count > 0;
}

}  // namespace remat
