// Output of a failing random test: a graph file and a command line to paste.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "remat/planner.h"

namespace remat::testing {

/// One call of `make_plan`, to repeat from a shell.
struct Call {
  Problem problem;
  std::string_view planner;
  PlanOptions options = {};
  std::optional<std::int64_t> work_limit = {};
};

/// Shell lines that write the graph and run the call with `remat plan`; known plans, which have no option
/// there, follow as a comment. Graphs that are too large to be read are left out.
std::string reproduction(const Call& call);
/// The lines that write the graph alone, for tests that call no planner.
std::string reproduction(const Graph& graph);

/// Records the current try of a test, printed with its first failure. `random_graph` records its graphs.
void record(std::string what);
const std::string& recorded();

/// Records the graph and hands it on.
Graph recorded(Graph graph);
/// Records the call and makes it.
PlanResult recorded_plan(const Problem& problem, std::string_view planner, const PlanOptions& options,
                         Limits& limits);

}  // namespace remat::testing
