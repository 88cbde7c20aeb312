// Host memory, the two channels between device and host, and copies through them. Normative: docs/model.md.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "remat/export.h"
#include "remat/ids.h"
#include "remat/quantity.h"

namespace REMAT_API remat {

struct Graph;

/// Out: from the device to the host. In: back.
enum class Way : std::uint8_t { kOut, kIn };
std::string_view to_string(Way way);

/// The host's memory and the speed of its channels, which run in parallel to the ops and to each other.
struct Host {
  std::int64_t out = 1;         ///< bytes per second from the device to the host, positive
  std::int64_t in = 1;          ///< bytes per second back, positive
  std::int64_t latency_ns = 0;  ///< of every copy
  std::optional<Bytes> budget;  ///< of host memory
  bool shared = false;          ///< one link, used by one copy at a time in either direction
  friend bool operator==(const Host&, const Host&) = default;
};

/// A copy of one instance. Steps are counted from 0; the number of steps stands for the end of the plan. Out
/// (eviction): issued at the end of step `issue`; the device waits for it before step `wait`, and from then
/// on its bytes are free. In (prefetch): takes its bytes from step `issue` on, is issued when the step before
/// has ended, and the device waits for it before step `wait`.
struct Copy {
  ValueId value;
  Way way = Way::kOut;
  StepId issue;
  StepId wait;
  friend bool operator==(const Copy&, const Copy&) = default;
};

/// What the copies of a plan cost.
struct Traffic {
  Duration stalled;            ///< time for which the device waits for copies
  Bytes out, in;               ///< copied each way
  Duration busy_out, busy_in;  ///< time that the copies of each way take
  Bytes host_peak;
  friend bool operator==(const Traffic&, const Traffic&) = default;
};

/// The graph's time units per second; nothing if the unit is not ns, us, ms or s.
std::optional<std::int64_t> units_per_second(const Graph& graph);
/// Throws InputError if `units_per_second` has no answer: copies cannot be timed against the ops.
void require_time_unit(const Graph& graph);

/// Time of copies of one graph through the channels of one host, in the graph's time unit, rounded up.
class CopyClock {
 public:
  /// The graph has a time unit (`require_time_unit`).
  CopyClock(const Graph& graph, const Host& host);
  Wide time(Way way, Bytes bytes) const;

 private:
  std::int64_t units_;
  std::int64_t out_, in_;
  std::int64_t latency_;
};

}  // namespace REMAT_API remat
