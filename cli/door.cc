#include "door.h"

#include <algorithm>

namespace remat::cli {

void DoorOption::declare(CLI::App& command) {
  command
      .add_option("--door", name,
                  "who runs it: remat: any plan; inductor: PyTorch's partitioner, which takes a set of saved "
                  "results; checkpoint: torch.utils.checkpoint around each numbered module (default: remat)")
      ->check(CLI::IsMember({"remat", "inductor", "checkpoint"}))
      ->type_name("remat|inductor|checkpoint");
}

PlanResult DoorOption::make(const Problem& problem, const std::string& planner, const PlanOptions& options,
                            Limits& limits) {
  constexpr double kShare = 0.5;
  {
    Limits share(limits, kShare);
    found_ = make_door_plan(problem, parse_door(name), options, share);
  }
  Problem full = problem;
  if (has_plan(found_.result)) full.starts = std::span(&*found_.result.plan, 1);
  full_ = make_plan(full, planner, options, limits);
  return found_.result;
}

void DoorOption::add_to(Report& report, const Problem& problem) const {
  const bool found = has_plan(found_.result), full = has_plan(full_);
  report["door"] = name;
  if (found_.door == Door::kCheckpoint) {
    report["regions"] = found_.regions.size();
    report["regions_again"] =
        std::ranges::count_if(found_.regions, [](const DoorRegion& region) { return !region.again.empty(); });
  }
  report["saved_bytes"] = found ? Report(found_.saved_bytes.count()) : Report(nullptr);
  report["full_status"] = to_string(full_.status);
  report["full_peak"] = full ? Report(full_.cost.peak.count()) : Report(nullptr);
  report["full_duration"] = full ? Report(full_.cost.duration.count()) : Report(nullptr);
  report["full_overhead"] = full ? Report(overhead(*problem.graph, full_.cost.duration)) : Report(nullptr);
}

std::string DoorOption::failure(const std::string& asked, Report& report) const {
  const bool proved = found_.result.status == Status::kInfeasible;
  report["smallest_known_budget"] = found_.least_peak.count();
  std::string message =
      proved
          ? "proved infeasible: no set of saved results of the door '" + name + "' fits into " + asked
          : "no set of saved results of the door '" + name + "' within " + asked + " found, nothing proved";
  message += "; the smallest peak found is " + exact_bytes(found_.least_peak);
  if (has_plan(full_)) message += "; a full plan has " + exact_bytes(full_.cost.peak);
  return message;
}

}  // namespace remat::cli
