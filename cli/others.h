// Plans made by other programs: read from files, or made by running a command.
#pragma once

#include <string>
#include <vector>

#include "common.h"

namespace remat::cli {

/// What `--plan NAME=FILE` or `--run NAME=COMMAND` names.
struct OtherPlan {
  std::string name;
  std::string file;     ///< of a plan; empty where a command makes one
  std::string command;  ///< with {graph}, {budget} and {out} for two paths and a number of bytes
};

/// Throws UsageError for a text that is not NAME=..., and for a name that belongs to a planner, is used twice
/// or has a '/'.
std::vector<OtherPlan> parse_other_plans(const std::vector<std::string>& files,
                                         const std::vector<std::string>& commands);

/// Another program's plan, validated, simulated and compared with the bounds like our own.
struct OtherResult {
  std::optional<PlanResult> result;  ///< none where there is no valid plan
  std::string note;                  ///< why not
};

/// `graph_file` replaces {graph}. A command is killed with its child processes after `run_limit` seconds.
OtherResult judge_other_plan(const Problem& problem, const OtherPlan& other, const std::string& graph_file,
                             double run_limit);

}  // namespace remat::cli
