// --door of remat plan: the best that an executor of others can do, beside the full plan.
#pragma once

#include "common.h"
#include "remat/door.h"

namespace remat::cli {

/// State: what was found, after `make`.
struct DoorOption {
  std::string name = "remat";

  void declare(CLI::App& command);
  bool is_given() const { return name != to_string(Door::kRemat); }
  /// Within half of the limits the door's plan, then the full one, which is no slower. Returns the door's.
  PlanResult make(const Problem& problem, const std::string& planner, const PlanOptions& options,
                  Limits& limits);
  void add_to(Report& report, const Problem& problem) const;
  /// Why the door has no plan; its exit code is the one of `result`.
  std::string failure(const std::string& asked, Report& report) const;

 private:
  DoorPlan found_;
  PlanResult full_;
};

}  // namespace remat::cli
