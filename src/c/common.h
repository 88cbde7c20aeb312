// Shared by the C functions: handles, versioned structs, error codes for exceptions, the limits of a call.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstring>
#include <mutex>
#include <new>
#include <span>
#include <string>
#include <system_error>
#include <type_traits>

#include "remat/c.h"
#include "remat/error.h"
#include "remat/graph.h"
#include "remat/limits.h"

struct remat_graph {
  remat::Graph graph;
};

struct remat_cancellation {
  std::atomic<bool> requested{false};
};
// A signal handler may store to it.
static_assert(std::atomic<bool>::is_always_lock_free);

namespace remat::c {

/// Notes the error of this thread and returns the code.
int failed(int code, const char* message);

template <class Call>
int guarded(Call&& call) {
  try {
    call();
    return REMAT_OK;
  } catch (const UsageError& error) {
    return failed(REMAT_BAD_USAGE, error.what());
  } catch (const InputError& error) {
    return failed(REMAT_BAD_INPUT, error.what());
  } catch (const std::bad_alloc&) {
    return failed(REMAT_OUT_OF_MEMORY, "out of memory");
  } catch (const std::system_error& error) {
    return failed(REMAT_REFUSED, error.what());
  } catch (const std::exception& error) {
    return failed(REMAT_BUG, error.what());
  } catch (...) {
    return failed(REMAT_BUG, "an exception of no known type");
  }
}

inline void require(const void* pointer, const char* what) {
  if (!pointer) throw UsageError(std::string(what) + " is NULL");
}

/// The size of a struct in its first version, the smallest that any program has. Specialise this when adding
/// fields to a struct.
template <class T>
inline constexpr std::size_t kFirstSize = sizeof(T);

/// A larger size means that the caller did not set it.
inline constexpr std::size_t kMostSize = 4096;

template <class T>
void require_size(std::size_t size, const char* type) {
  if (size >= kFirstSize<T> && size <= kMostSize) return;
  throw UsageError(std::string(type) + ".size is " + std::to_string(size) + ", not from " +
                   std::to_string(kFirstSize<T>) + " to " + std::to_string(kMostSize) +
                   ": set it to sizeof(" + type + ")");
}

/// The struct of a program that may be older or newer than this library.
template <class T>
T read_struct(const T* given, const char* type) {
  static_assert(std::is_trivially_copyable_v<T>);
  require(given, type);
  require_size<T>(given->size, type);
  const auto* bytes = reinterpret_cast<const unsigned char*>(given);
  for (std::size_t i = sizeof(T); i < given->size; ++i) {
    if (bytes[i] == 0) continue;
    throw UsageError(std::string(type) + ": byte " + std::to_string(i) +
                     " is not 0, and version " REMAT_VERSION " knows " + std::to_string(sizeof(T)) +
                     " bytes");
  }
  T read{};
  std::memcpy(&read, given, std::min(sizeof read, given->size));
  return read;
}

/// Fills the fields that the caller's version has; `size` stays.
template <class T>
void write_struct(T filled, T* into, const char* type) {
  require(into, type);
  require_size<T>(into->size, type);
  filled.size = into->size;
  std::memcpy(into, &filled, std::min(sizeof filled, into->size));
}

inline std::string at_index(const char* name, std::int64_t i) {
  return std::string(name) + "[" + std::to_string(i) + "]";
}

/// An array that must not be null if it has elements.
template <class T>
std::span<const T> array(const T* data, std::int64_t count, const char* name, const char* counted) {
  if (count < 0) throw InputError(std::string(counted) + " is " + std::to_string(count) + ", below 0");
  if (count > 0 && !data) {
    throw InputError(std::string(name) + " is NULL, and " + counted + " is " + std::to_string(count));
  }
  return {data, static_cast<std::size_t>(count)};
}

/// A number of an options struct; both ends are allowed.
template <class T>
T within(T value, T least, T most, const char* name) {
  if (value >= least && value <= most) return value;
  throw UsageError(std::string(name) + " is " + std::to_string(value) + ", not from " +
                   std::to_string(least) + " to " + std::to_string(most));
}

/// Time, work, cancelling and progress, for as long as a call takes.
class Effort {
 public:
  template <class Options>  // of plans or of layouts
  explicit Effort(const Options& options)
      : progress_(options.progress), data_(options.progress_data), external_(options.cancellation) {
    if (!(options.time_limit >= 0)) {
      throw UsageError("time_limit is " + std::to_string(options.time_limit) + ", not 0 or more seconds");
    }
    within<std::int64_t>(options.work_limit, 0, kMaxCount - 1, "work_limit");
    if (options.time_limit > 0) limits_.set_time(options.time_limit);
    if (options.work_limit > 0) limits_.set_work(options.work_limit);
    if (external_) limits_.set_stop(&external_->requested);
    if (progress_) {
      limits_.set_progress([this](const Progress& progress) { report(progress); });
    }
  }
  Effort(const Effort&) = delete;
  Effort& operator=(const Effort&) = delete;

  Limits& limits() { return limits_; }

 private:
  void report(const Progress& progress) {
    const std::scoped_lock lock(mutex_);
    const remat_progress shown{.size = sizeof(remat_progress),
                               .planner = progress.planner.c_str(),
                               .seconds = limits_.seconds(),
                               .peak = progress.peak ? progress.peak->count() : -1,
                               .duration = progress.duration ? progress.duration->count() : -1,
                               .fits = progress.within_budget};
    if (progress_(&shown, data_) != 0) limits_.end(StoppedBy::kInterrupted);
  }

  remat_progress_fn progress_;
  void* data_;
  const remat_cancellation* external_;
  std::mutex mutex_;  // one call of `progress_` at a time
  Limits limits_;
};

}  // namespace remat::c
