// remat_differential: any number of random graphs against the exact answers.
//   build/tests/remat_differential --graphs 10000 --seed 2
#include <CLI/CLI.hpp>
#include <cstdio>
#include <iostream>

#include "differential/differential.h"

int main(int argc, char** argv) {
  remat::differential::Settings settings;
  CLI::App app{"Holds every planner against the exact answers on random tiny graphs."};
  app.add_option("--graphs", settings.graphs, "how many (default: 200)")->check(CLI::NonNegativeNumber);
  app.add_option("--seed", settings.seed, "seed (default: 1)");
  app.add_option("--first", settings.first, "number of the first graph (default: 0)");
  app.add_option("--planner", settings.planner, "this one alone (or prove_optimal)");
  CLI11_PARSE(app, argc, argv);
  const remat::differential::Report report = remat::differential::run(settings);
  for (const std::string& finding : report.findings) std::cout << finding << "\n";
  std::printf("%-16s %10s %10s %10s %10s %10s %10s %10s\n", "planner", "calls", "optimal", "feasible",
              "infeasible", "unknown", "seconds", "findings");
  for (const auto& [name, tally] : report.planners) {
    std::printf("%-16s %10lld %10lld %10lld %10lld %10lld %10.1f %10lld\n", name.c_str(),
                static_cast<long long>(tally.calls), static_cast<long long>(tally.optimal),
                static_cast<long long>(tally.feasible), static_cast<long long>(tally.infeasible),
                static_cast<long long>(tally.unknown), tally.seconds, static_cast<long long>(tally.findings));
  }
  std::printf("graphs %lld, findings %zu\n", static_cast<long long>(report.graphs), report.findings.size());
  return report.findings.empty() ? 0 : 1;
}
