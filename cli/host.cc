#include "host.h"

#include <array>
#include <cmath>

namespace remat::cli {
namespace {

/// "10us" to nanoseconds, rounded up.
std::int64_t parse_latency(const std::string& text) {
  struct Unit {
    std::string_view name;
    double nanoseconds;
  };
  constexpr std::array<Unit, 4> kUnits{{{"ns", 1}, {"us", 1e3}, {"ms", 1e6}, {"s", 1e9}}};
  constexpr double kMost = 1e18;
  double amount = 0;
  const auto [at, error] =
      std::from_chars(text.data(), text.data() + text.size(), amount, std::chars_format::fixed);
  if (error == std::errc() && amount >= 0) {
    const std::string_view rest(at, text.data() + text.size());
    for (const Unit& unit : kUnits) {
      const double nanoseconds = std::ceil(amount * unit.nanoseconds);
      if (unit.name == rest && nanoseconds < kMost) return static_cast<std::int64_t>(nanoseconds);
    }
  }
  throw UsageError("latency '" + text + "' is not a time: write 10us, 500ns or 1ms");
}

}  // namespace

void HostOptions::declare(CLI::App& command) {
  const auto add = [&](const char* name, std::string& into, const char* what, const char* type) {
    command.add_option(name, into, what)->type_name(type);
  };
  add("--host", both, "allow copies to the host and back, at this bandwidth each way: 25GB/s", "BYTES/s");
  add("--host-out", out, "bandwidth to the host, instead of --host", "BYTES/s");
  add("--host-in", in, "bandwidth from the host, instead of --host", "BYTES/s");
  add("--host-latency", latency, "latency of every copy: 10us (default: none)", "TIME");
  add("--host-budget", budget, "host memory: 64GiB (default: unlimited)", "B");
  command.add_flag("--host-shared", shared, "one link: copies out and in take turns");
}

std::optional<Host> HostOptions::read(const Graph& graph, const std::string& path) const {
  const bool has_bandwidth = !both.empty() || (!out.empty() && !in.empty());
  if (!has_bandwidth) {
    if (!out.empty() || !in.empty()) throw UsageError("--host-out and --host-in go together, or with --host");
    if (!latency.empty() || !budget.empty() || shared) {
      throw UsageError("--host-latency, --host-budget and --host-shared go with --host");
    }
    return std::nullopt;
  }
  Host host;
  host.out = parse_bandwidth(out.empty() ? both : out);
  host.in = parse_bandwidth(in.empty() ? both : in);
  if (!latency.empty()) host.latency_ns = parse_latency(latency);
  if (!budget.empty()) {
    if (budget.ends_with('%')) throw UsageError("--host-budget is in bytes: there is no share of the host");
    host.budget = parse_budget(budget, Bytes());
  }
  host.shared = shared;
  of_file(path, [&] { require_time_unit(graph); });
  return host;
}

void add_traffic(Report& report, const Simulation& cost, bool is_timed) {
  const Traffic& traffic = cost.traffic;
  const auto timed = [&](auto value) { return is_timed ? Report(value) : Report(nullptr); };
  const auto share = [&](Duration busy) {
    const auto whole = static_cast<double>(cost.duration.count());
    return timed(whole > 0 ? static_cast<double>(busy.count()) / whole : 0.0);
  };
  report["stalled"] = timed(traffic.stalled.count());
  report["bytes_out"] = traffic.out.count();
  report["bytes_in"] = traffic.in.count();
  report["busy_out"] = share(traffic.busy_out);
  report["busy_in"] = share(traffic.busy_in);
  report["host_peak"] = traffic.host_peak.count();
}

}  // namespace remat::cli
