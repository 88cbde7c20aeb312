#include "base/side_job.h"

#include <chrono>
#include <condition_variable>
#include <cstdlib>
#include <exception>
#include <memory>
#include <mutex>
#include <optional>
#include <system_error>
#include <thread>
#include <utility>

#include "remat/left_behind.h"

namespace remat {
namespace {

constexpr std::chrono::milliseconds kLook{5};
constexpr std::chrono::milliseconds kGrace{40};  // a quarter of what a limit may be overrun

struct Done {
  std::mutex mutex;
  std::condition_variable changed;
  bool ended = false;
  std::exception_ptr error;
};

/// Work that nobody waits for any more. Never destroyed: its threads may outlive everything.
struct LeftBehind {
  std::mutex mutex;
  std::condition_variable changed;
  int count = 0;
};
LeftBehind& left_behind() {
  static LeftBehind* all = new LeftBehind;
  return *all;
}

void wait_at_exit() {
  LeftBehind& all = left_behind();
  std::unique_lock lock(all.mutex);
  all.changed.wait(lock, [&] { return all.count == 0; });
}

/// The thread itself says when it is done, so that it can be left without a handle.
class Ticket {
 public:
  void leave() {
    std::atexit(wait_at_exit);  // each time, to come before what a library registered meanwhile
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

}  // namespace

bool run_beside(const SideJob& job, Limits& limits) {
  const auto ticket = std::make_shared<Ticket>();
  std::thread thread;
  try {
    thread = std::thread([work = job.work, ticket]() mutable {
      std::exception_ptr error;
      try {
        work();
      } catch (...) {
        error = std::current_exception();
      }
      work = nullptr;  // what it owns goes before anybody may think that it ended
      ticket->end(std::move(error));
    });
  } catch (const std::system_error&) {
    job.work();
    return true;
  }
  std::optional<std::chrono::steady_clock::time_point> stopped;
  std::unique_lock lock(ticket->done.mutex);
  while (!ticket->done.changed.wait_for(lock, kLook, [&] { return ticket->done.ended; })) {
    lock.unlock();
    job.meanwhile();
    const auto now = std::chrono::steady_clock::now();
    if (!stopped && limits.reached()) {
      job.stop();
      stopped = now;
    }
    if (stopped && now - *stopped > kGrace) {
      ticket->leave();
      thread.detach();
      return false;
    }
    lock.lock();
  }
  lock.unlock();
  thread.join();
  if (ticket->done.error) std::rethrow_exception(ticket->done.error);
  return true;
}

bool work_is_left_behind() {
  LeftBehind& all = left_behind();
  const std::scoped_lock lock(all.mutex);
  return all.count > 0;
}

}  // namespace remat
