// --host and related options: the host of plans with copies.
#pragma once

#include <CLI/CLI.hpp>
#include <optional>
#include <string>

#include "common.h"
#include "remat/plan.h"

namespace remat::cli {

struct HostOptions {
  std::string both, out, in, latency, budget;
  bool shared = false;

  void declare(CLI::App& command);
  bool is_given() const { return !(both + out + in + latency + budget).empty() || shared; }
  /// Nothing if none of them is given. Throws UsageError if they do not make a host, InputError naming `path`
  /// if copies cannot be timed in the graph's time unit.
  std::optional<Host> read(const Graph& graph, const std::string& path) const;
};

/// Stalls, bytes, busy shares and host peak of a plan with copies; times are null unless `is_timed`.
void add_traffic(Report& report, const Simulation& cost, bool is_timed);

}  // namespace remat::cli
