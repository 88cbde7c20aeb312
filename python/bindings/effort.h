// How long and how hard a planner may work, as Python says it; the plans that this process knows.
#pragma once

#include "bindings.h"
#include "remat/limits.h"
#include "remat/store.h"

namespace remat::python {

/// `_core.Effort`. Made from Python's arguments it throws UsageError for negative limits, seeds and counts of
/// threads.
struct Effort {
  PlanOptions options;
  std::optional<double> time_limit;
  std::optional<std::int64_t> work_limit;
  std::optional<double> gap;  ///< as a share

  void apply(Limits& limits) const;
  /// For the file of a plan.
  PlanRequest request(const Problem& problem, std::string_view planner) const;
};

/// One for the process.
PlanStore& plan_store();

}  // namespace remat::python
