#include "remat/host.h"

#include "base/numbers.h"
#include "remat/error.h"
#include "remat/graph.h"

namespace remat {
namespace {

constexpr std::int64_t kNanoseconds = 1'000'000'000;

Wide divided_up(Wide amount, Wide by) { return (amount + by - 1) / by; }

}  // namespace

std::string_view to_string(Way way) { return way == Way::kOut ? "out" : "in"; }

std::optional<std::int64_t> units_per_second(const Graph& graph) {
  if (graph.time_unit == "ns") return kNanoseconds;
  if (graph.time_unit == "us") return 1'000'000;
  if (graph.time_unit == "ms") return 1'000;
  if (graph.time_unit == "s") return 1;
  return std::nullopt;
}

void require_time_unit(const Graph& graph) {
  if (units_per_second(graph)) return;
  throw InputError("the graph's time unit is '" + graph.time_unit +
                   "', and copies to a host can be timed only in ns, us, ms or s");
}

CopyClock::CopyClock(const Graph& graph, const Host& host)
    : units_(units_per_second(graph).value()), out_(host.out), in_(host.in) {
  latency_ = static_cast<std::int64_t>(divided_up(Wide{host.latency_ns} * units_, kNanoseconds));
}

Wide CopyClock::time(Way way, Bytes bytes) const {
  return latency_ + divided_up(Wide{bytes.count()} * units_, way == Way::kOut ? out_ : in_);
}

}  // namespace remat
