// Memory beside the device's, the two channels to it, and copies through them. Normative: docs/model.md.
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

/// What the host has and how fast it is reached. The channels run beside the ops and beside each other.
struct Host {
  std::int64_t out = 1;         ///< bytes per second from the device to the host, positive
  std::int64_t in = 1;          ///< bytes per second back, positive
  std::int64_t latency_ns = 0;  ///< of every copy
  std::optional<Bytes> budget;  ///< of host memory
  bool shared = false;          ///< one link: both ways take turns
  friend bool operator==(const Host&, const Host&) = default;
};

/// A copy of one instance. Steps are counted from 0; as many as the plan has means after the last one.
/// Out: issued at the end of step `issue`; before step `wait` the device waits for it, and from then on the
/// bytes are free. In: the bytes are taken from step `issue` on, the copy is issued when the step before has
/// ended, and before step `wait` the device waits for it.
struct Copy {
  ValueId value;
  Way way = Way::kOut;
  StepId issue;
  StepId wait;
  friend bool operator==(const Copy&, const Copy&) = default;
};

/// What the copies of a plan do, beside what its steps cost.
struct Traffic {
  Duration stalled;            ///< the device waits for copies
  Bytes out, in;               ///< copied each way
  Duration busy_out, busy_in;  ///< time that the copies of each way take
  Bytes host_peak;
  friend bool operator==(const Traffic&, const Traffic&) = default;
};

/// How many of the graph's time units are a second; nothing where the unit is not ns, us, ms or s.
std::optional<std::int64_t> units_per_second(const Graph& graph);
/// Throws InputError where `units_per_second` has nothing: copies cannot be timed against the ops.
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
