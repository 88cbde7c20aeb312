// Every planner on random tiny graphs, compared with the exact answers of exact.h.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace remat::differential {

struct Settings {
  std::uint64_t seed = 1;
  std::int64_t first = 0, graphs = 200;  ///< graphs [first, first + graphs) of the seed
  std::string planner;                   ///< this one alone; empty: all
};

/// Results of one planner (or proof) over all its calls.
struct Tally {
  std::int64_t calls = 0, optimal = 0, feasible = 0, infeasible = 0, unknown = 0, findings = 0;
  double seconds = 0;
};

struct Report {
  std::int64_t graphs = 0;
  std::map<std::string, Tally> planners;
  std::vector<std::string> findings;  ///< the error, the graph as a file, the call as a command line
};

/// For each graph, order and planner: one call for time at a random budget and, every third time, one for the
/// least peak, with that budget or without, with a random seed, work limit, options and known plans. Each
/// graph depends on the seed and its own number only. A planner that throws is a finding.
Report run(const Settings& settings);

}  // namespace remat::differential
