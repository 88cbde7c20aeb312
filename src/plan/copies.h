// The instances of a plan with copies to the host and back, and the plan's time.
#pragma once

#include <optional>
#include <vector>

#include "remat/plan.h"

namespace remat {

/// An instance in memory from step `first` to step `last`, made by an op or a copy in.
struct CopiedInstance {
  ValueId value;
  StepId first;
  StepId last;
  StepId last_read;        ///< none where no step reads it
  StepId usable;           ///< the first step that may read it
  bool is_copied = false;  ///< out: held until the wait, and never written over
  bool is_kept = false;    ///< to the end
};

/// The first rule about instances that a plan breaks.
struct CopyFault {
  Rule rule;
  StepId step;
  ValueId value;
};

struct CopyWalk {
  std::vector<CopiedInstance> instances;  ///< those that begin after the last step left out
  std::optional<CopyFault> fault;         ///< and the walk ended there
};

/// Follows the instances through steps and copies. Steps and copies must each be valid by themselves: ops
/// exist, inputs are made before they are read, issues and waits are steps, a value is copied out once.
CopyWalk walk_copies(const Graph& graph, const Plan& plan);

/// Time of the whole plan, and the traffic of its copies.
struct CopyTimes {
  Wide duration = 0, stalled = 0, busy_out = 0, busy_in = 0;
};
/// Exact; `plan` must be valid. `written`, if given, receives the times of all steps and copies.
CopyTimes time_copies(const Graph& graph, const Plan& plan, const Host& host, PlanTimes* written = nullptr);

/// Bytes copied each way, and the host peak: a value is on the host from the issue of its copy out to the
/// wait of its last copy.
Traffic bytes_of_copies(const Graph& graph, const Plan& plan);

}  // namespace remat
