// Plans of others: from files, and from programs that are run.
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

/// Throws UsageError for a text that is no NAME=..., and for a name that is a planner's, is used twice or has
/// a '/'.
std::vector<OtherPlan> parse_other_plans(const std::vector<std::string>& files,
                                         const std::vector<std::string>& commands);

/// A plan of others, validated, simulated and compared with the bounds as one of our own.
struct OtherResult {
  std::optional<PlanResult> result;  ///< none where there is no valid plan
  std::string note;                  ///< why not
};

/// graph_file: what {graph} stands for. run_limit: seconds after which a command is ended, with all that it
/// started.
OtherResult judge_other_plan(const Problem& problem, const OtherPlan& other, const std::string& graph_file,
                             double run_limit);

}  // namespace remat::cli
