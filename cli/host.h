// --host and its relatives: the machine that plans with copies are timed on.
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
  /// Nothing where none of them is given. Throws UsageError where they do not make a host, InputError naming
  /// `path` where the graph has no time unit that copies can be timed in.
  std::optional<Host> read(const Graph& graph, const std::string& path) const;
};

/// Stalls, bytes, busy shares and host peak of a plan with copies; those that need a clock are null without.
void add_traffic(Report& report, const Simulation& cost, bool is_timed);

}  // namespace remat::cli
